//! What somebody probably meant.

/// The longest word compared: no name of ours is longer, and comparing takes the product of the
/// lengths.
const MAX_WORD: usize = 64;

/// The known word that differs least from `word`, if one differs so little that it may be meant.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase();
    if word.is_empty() || word.chars().count() > MAX_WORD {
        return None;
    }
    let most = (word.chars().count() / 3).max(1);
    let ranked = known.into_iter().filter(|known| known.len() <= MAX_WORD).map(|known| {
        let lower = known.to_lowercase();
        // A word with something added or left out at its end is the plural, or half the name.
        let related = lower.starts_with(&word) || word.starts_with(&lower);
        let distance = distance(&word, &lower);
        (
            if related && word.len() > 2 && lower.len() > 2 { distance.min(1) } else { distance },
            known,
        )
    });
    ranked
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// How many letters have to be put in, left out, changed or swapped with the next.
fn distance(one: &str, two: &str) -> usize {
    let (one, two): (Vec<char>, Vec<char>) = (one.chars().collect(), two.chars().collect());
    let mut before = vec![0; two.len() + 1];
    let mut last: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in two.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == two[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let known = ["quota", "algorithm", "on_store_failure", "by", "unit"];
        for (word, expected) in [
            ("quotas", Some("quota")),
            ("qouta", Some("quota")),
            ("algorthm", Some("algorithm")),
            ("algo", Some("algorithm")),
            ("Unit", Some("unit")),
            ("bye", Some("by")),
            ("limit", None),
            ("", None),
            ("xyz", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
