//! Policies in files: settings people enjoy writing, and complaints that teach.
//!
//! ```text
//! text ──▶ tree.rs      TOML or YAML, every value with its place     bounded, never panics
//!      ──▶ typed.rs     as typed: fields and kinds                   all complaints, not the first
//!      ──▶ compile.rs   as meant: Settings, and the Policy in them
//!      ──▶ lint.rs      what is right and cannot be meant
//!      ──▶ report.rs    file, line, column, a caret, what to write instead
//! ```
//!
//! [`Loader`] reads a file with the environment and flags over it; [`Reloader`] does so again whenever
//! the file changes.
//!
//! ```
//! use tollgate_config::{Format, Loader, Source};
//!
//! let text = "
//! [[rule]]
//! name = 'per-ip'
//! by = ['ip']
//! quota = '120/fortnight'
//! ";
//! let report = Loader::new().load_text(Source::new("tollgate.toml", text), Format::Toml);
//! assert_eq!(report.unwrap_err().to_string(), r#"error: quota "120/fortnight": unknown unit of time "fortnight"
//!  --> tollgate.toml:5:9
//!   |
//! 5 | quota = '120/fortnight'
//!   |         ^^^^^^^^^^^^^^^
//!   = help: write us, ms, s, min, h, d or w (examples: "100/min", "5/15m", "10/s burst 50")
//! "#);
//! ```

mod axis;
mod calendar;
mod compile;
pub mod envoy;
mod fields;
mod lint;
mod loader;
mod nearest;
mod quota;
mod reload;
mod report;
mod schema;
mod secrets;
mod settings;
mod source;
mod tree;
mod typed;
mod url;

pub use loader::{Loaded, Loader, Setting};
pub use reload::Reloader;
pub use report::{Finding, Place, Report, Severity};
pub use schema::schema;
pub use settings::{
    Audit, Consistency, Dialect, HeaderAxis, Listen, Metrics, RuleSettings, Secret, Settings,
    StoreSettings,
};
pub use source::Source;
pub use tree::Format;
pub use url::WrongUrl;
