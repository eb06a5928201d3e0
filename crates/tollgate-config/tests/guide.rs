//! Every example of the guide is a file that loads, without so much as a warning.

use tollgate_config::envoy::{Domains, Options};
use tollgate_config::{Format, Loader, Source};

const GUIDE: &str = include_str!("../../../docs/policies.md");

/// The fenced blocks: what is said after the fence, and what is in it.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fences = GUIDE.split("\n```").skip(1).step_by(2);
    fences.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn every_example_loads() {
    let blocks = blocks();
    assert!(blocks.len() >= 12, "only {} examples", blocks.len());
    for (number, (language, text)) in blocks.into_iter().enumerate() {
        let source = Source::new(format!("example {}", number + 1), text);
        let warnings = match language {
            "toml" => Loader::new().load_text(source, Format::Toml).map(|read| read.warnings),
            "yaml" => Loader::new().load_text(source, Format::Yaml).map(|read| read.warnings),
            "yaml envoy" => Domains::read([source], Options::default()).map(|read| read.warnings),
            other => panic!("example {} is in {other:?}, which nobody tests", number + 1),
        };
        let warnings = warnings.unwrap_or_else(|report| panic!("{report}\n{text}"));
        assert!(warnings.is_empty(), "{warnings}\n{text}");
    }
}

#[test]
fn the_first_example_is_the_same_in_both_formats() {
    let rules = |(language, text): (&str, &str)| {
        let format = if language == "yaml" { Format::Yaml } else { Format::Toml };
        let loaded = Loader::new().load_text(Source::new("guide", text), format).unwrap();
        loaded.settings.policy.rules().cloned().collect::<Vec<_>>()
    };
    let blocks = blocks();
    assert_eq!(rules(blocks[0]), rules(blocks[1]));
}
