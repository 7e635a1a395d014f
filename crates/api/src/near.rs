//! Similar names: what the user who typed an unknown name probably meant.

/// The known name closest to the given one; `None` where none is close. Of equally close ones the first.
///
/// Close is a name with few letters added, lost, changed or swapped (about one in three), or one that the given name begins:
/// `torch-distribtued` and `torch` both mean `torch-distributed`.
pub fn near<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = folded(given);
    if wanted.is_empty() {
        return None;
    }
    let ranked = known.into_iter().filter_map(|name| Some((distance_of(&wanted, &folded(name))?, name)));
    // the first of the least: min_by_key keeps it
    ranked.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// What to say after "there is no …": `; did you mean "x"?`, or nothing.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    near(given, known).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// Case and the kind of dash do not count.
fn folded(name: &str) -> Vec<char> {
    name.chars().map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// How far a known name is from the wanted one; `None`: too far.
fn distance_of(wanted: &[char], name: &[char]) -> Option<usize> {
    let typos = typos(wanted, name);
    // one letter of a short name, more of a longer one; of two letters none, for everything is near to them
    let most = if wanted.len() < 3 { 0 } else { wanted.len().div_ceil(3).min(4) };
    if typos <= most {
        return Some(typos);
    }
    // what is only begun is further than any typo
    (wanted.len() >= 2 && name.starts_with(wanted)).then(|| 4 + name.len() - wanted.len())
}

/// Letters to add, lose, change or swap with their neighbour (optimal string alignment).
fn typos(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = last;
        last = row;
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIMES: [&str; 5] =
        ["torch-distributed", "jax-distributed", "xgboost-distributed", "plain", "torchtune-qwen2.5-1.5b"];

    #[test]
    fn typos_and_beginnings_are_understood() {
        let cases = [
            ("torch-distribtued", Some("torch-distributed")),
            ("torch_distributed", Some("torch-distributed")),
            ("Torch-Distributed", Some("torch-distributed")),
            ("torch", Some("torch-distributed")),
            ("jax", Some("jax-distributed")),
            ("plian", Some("plain")),
            ("pla", Some("plain")),
            ("mpi", None),
            ("nope", None),
            ("x", None),
            ("", None),
        ];
        for (given, meant) in cases {
            assert_eq!(near(given, RUNTIMES), meant, "{given}");
        }
    }

    #[test]
    fn the_closest_wins_and_of_equals_the_first() {
        assert_eq!(near("trian", ["train-2", "train", "brain"]), Some("train"));
        assert_eq!(near("job-3", ["job-1", "job-2"]), Some("job-1"));
        assert_eq!(did_you_mean("plian", RUNTIMES), "; did you mean \"plain\"?");
        assert_eq!(did_you_mean("nope", RUNTIMES), "");
    }
}
