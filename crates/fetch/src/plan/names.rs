//! The names of files in the target: none may leave it, and none may be where another needs a folder.

use super::error::Error;
use std::collections::BTreeMap;

/// The folder of our own state in every target.
pub const STATE: &str = ".trainyard";

/// The longest path that system calls take, without the zero byte at its end.
const PATH_MAX: usize = 4095;

/// A file that is to be: the name it has in its source, and its path in the target.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub source: &'a str,
    pub target: &'a str,
    /// Which of the locations it is from.
    pub location: usize,
}

/// The names that cannot be files of the target, by their places in `names`, in order, each with the reason. Of two names of one
/// location that exclude each other, one is among them: a file where others need a folder, or the later of two with one path.
/// `target`: how long the path of the target is.
///
/// # Errors
/// Names of different locations exclude each other: only the user can tell which location counts.
pub fn unfit(names: &[Name<'_>], target: usize) -> Result<Vec<(usize, String)>, Error> {
    let longest = PATH_MAX.saturating_sub(target).saturating_sub(1);
    let mut left: Vec<(usize, String)> = Vec::new();
    let mut all: Vec<(usize, Name<'_>)> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        match wrong(name.target, longest) {
            Some(why) => left.push((at, why.to_owned())),
            None => all.push((at, *name)),
        }
    }
    // most lists come in this order, which takes one look
    all.sort_by_key(|(_, name)| name.target);
    let mut kept: Vec<(usize, Name<'_>)> = Vec::with_capacity(all.len());
    for (at, name) in all {
        match kept.last() {
            Some((_, first)) if first.target == name.target => {
                if first.location != name.location {
                    let why = format!("would both be written to {:?}", name.target);
                    return Err(conflict(first.source, name.source, &why));
                }
                left.push((at, format!("{:?} is written to {:?}", first.source, name.target)));
            }
            _ => kept.push((at, name)),
        }
    }
    let mut above = "";
    // places in `kept` of files where folders are needed, and the name that needs them
    let mut folders: BTreeMap<usize, &str> = BTreeMap::new();
    for (_, name) in &kept {
        let parent = name.target.rsplit_once('/').map_or("", |(parent, _)| parent);
        if parent == above {
            continue;
        }
        above = parent;
        for folder in name.target.match_indices('/').map(|(at, _)| &name.target[..at]) {
            let Ok(at) = kept.binary_search_by_key(&folder, |(_, file)| file.target) else { continue };
            let file = kept[at].1;
            if file.location != name.location {
                let why = format!("cannot both be there: {folder:?} would be file and folder");
                return Err(conflict(file.source, name.source, &why));
            }
            folders.entry(at).or_insert(name.source);
        }
    }
    let needed = |(at, source): (usize, &str)| (kept[at].0, format!("{source:?} needs a folder of that name"));
    left.extend(folders.into_iter().map(needed));
    left.sort_unstable_by_key(|(at, _)| *at);
    Ok(left)
}

fn conflict(one: &str, other: &str, why: &str) -> Error {
    Error::config(format!("{one:?} and {other:?} {why}; leave one out with IGNORE_PATTERNS. Nothing was written"))
}

fn wrong(path: &str, longest: usize) -> Option<&'static str> {
    if path.len() > longest {
        return Some("its path in the target is longer than 4,095 bytes");
    }
    if path.contains('\0') {
        return Some("it has a zero byte in it");
    }
    for segment in path.split('/') {
        match segment {
            "" => return Some("a part of its path is empty"),
            "." | ".." => return Some("it would climb out of the target"),
            _ if segment.len() > 255 => return Some("a part of its path is longer than 255 bytes"),
            _ => {}
        }
    }
    (path == STATE || path.starts_with(".trainyard/"))
        .then_some("the folder .trainyard holds the state of the download")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named<'a>(location: usize, names: &[&'a str]) -> Vec<Name<'a>> {
        names.iter().map(|name| Name { source: name, target: name, location }).collect()
    }

    fn left(names: &[&str]) -> Vec<usize> {
        unfit(&named(0, names), 10).unwrap().into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn a_name_that_cannot_be_costs_that_file() {
        let (segment, path) = ("x".repeat(256), "x/".repeat(2048) + "x");
        for bad in ["../x", "a/../../x", "a//b", "/a", "a/", "", "a/./b", "a\0b", ".trainyard/state", &segment, &path] {
            assert_eq!(left(&["fine", bad, "z"]), [1], "{bad:?}");
        }
        assert!(left(&["a", "b/c", "b/d", "..a/b..", ".trainyard2/x", "ü/ [1] 100%.txt", "#?"]).is_empty());
        // the target is part of the path
        let name = "x/".repeat(2000) + "x";
        assert!(left(&[&name]).is_empty() && unfit(&named(0, &[&name]), 94).unwrap().len() == 1);
    }

    #[test]
    fn of_names_that_exclude_each_other_one_is_left_out() {
        for (names, gone) in [
            (&["0", "a", "a-b", "a/b"][..], &[1][..]),
            (&["a/b/c", "a/b", "z", "a/b/d"], &[1]),
            (&["a", "a/b", "a/b/c"], &[0, 1]),
            (&["x", "y", "x"], &[2]),
            // what a name needs that is no file itself takes nothing away
            (&["a", "a/../b", "a//b"], &[1, 2]),
        ] {
            assert_eq!(left(names), gone, "{names:?}");
        }
    }

    #[test]
    fn locations_that_exclude_each_other_are_named() {
        for pair in [["a", "a/b"], ["a/b/c", "a/b"], ["x", "x"], ["d/e/f", "d"]] {
            let names = [named(0, &["0", pair[0], "a-b"]), named(1, &pair[1..])].concat();
            let text = unfit(&names, 10).unwrap_err().text;
            assert!(text.contains(&format!("{:?}", pair[0])) && text.contains(&format!("{:?}", pair[1])), "{text}");
        }
    }

    proptest! {
        /// What stays can all be there at once, and nothing goes without a cause.
        #[test]
        fn what_stays_fits(names in prop::collection::vec("[ab./]{0,6}", 0..12)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let left = left(&names);
            let kept: Vec<&str> =
                names.iter().enumerate().filter(|(at, _)| !left.contains(at)).map(|(_, name)| *name).collect();
            let folder = tempfile::tempdir().unwrap();
            for name in &kept {
                let path = folder.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                prop_assert!(!path.exists(), "{:?}", name);
                std::fs::write(&path, name).unwrap();
            }
            for at in left {
                let own: Vec<&str> = kept.iter().copied().chain([names[at]]).collect();
                prop_assert!(!self::left(&own).is_empty(), "{:?}", names[at]);
            }
        }
    }
}
