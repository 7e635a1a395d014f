//! Names: a public type of tiers 0 to 2 has one meaning. Those that have more are counted, and may only become fewer.

use super::crates::is_room;
use std::collections::{BTreeMap, BTreeSet};

/// Words of a contract that each of its users has, and that mean the same everywhere.
const CONTRACTS: &[&str] = &["Observed"];
/// So many names are used by more than one crate today. Whoever removes one lowers it.
const REPEATED: usize = 138;

/// The names of public types that more than one crate has, with the crates.
fn repeated<'a>(texts: &'a [(&'a str, String)]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in texts {
        let Some((room, rest)) = file.strip_prefix("crates/").and_then(|rest| rest.split_once('/')) else { continue };
        if !is_room(room) || !rest.starts_with("src/") || !rest.ends_with(".rs") {
            continue;
        }
        for name in text.lines().filter_map(type_of).filter(|name| !CONTRACTS.contains(name)) {
            named.entry(name).or_default().insert(room);
        }
    }
    named.retain(|_, rooms| rooms.len() > 1);
    named
}

/// The name of the public type that a line declares.
fn type_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type "].into_iter().find_map(|word| rest.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.get(..end).filter(|name| !name.is_empty())
}

/// All of them, where there are more than there were.
pub(super) fn more(texts: &[(&str, String)]) -> Vec<String> {
    let all = repeated(texts);
    let list = |rooms: &BTreeSet<&str>| rooms.iter().copied().collect::<Vec<_>>().join(", ");
    match all.len().cmp(&REPEATED) {
        std::cmp::Ordering::Equal => Vec::new(),
        std::cmp::Ordering::Less => {
            vec![format!("{} public names are used by more than one crate: lower names::REPEATED to that", all.len())]
        }
        std::cmp::Ordering::Greater => {
            let mut lines: Vec<String> =
                all.iter().map(|(name, rooms)| format!("{name}: a public type of {}", list(rooms))).collect();
            lines.push(format!(
                "{} public names are used by more than one crate, where {REPEATED} were: rename the newest",
                all.len()
            ));
            lines
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_rooms_is_found() {
        let text = |body: &str| body.to_owned();
        let texts = [
            (
                "crates/api/src/a.rs",
                text("pub struct One;\npub(crate) struct Own;\n    pub struct Inner;\npub type Two<T> = T;\n"),
            ),
            ("crates/node/src/b.rs", text("pub enum One {}\nstruct Own;\npub struct Observed;\n")),
            ("crates/plan/src/b.rs", text("pub trait Two: Sized {}\npub struct Observed;\n")),
            ("crates/cli/src/c.rs", text("pub struct One;\n")),
            ("crates/api/tests/c.rs", text("pub struct Two;\n")),
        ];
        let found = repeated(&texts);
        let found: Vec<(&str, usize)> = found.iter().map(|(name, rooms)| (*name, rooms.len())).collect();
        assert_eq!(found, [("One", 2), ("Two", 2)]);
    }
}
