//! The names of files in the target: none may climb out of it, and none may stand where another needs a folder.

use super::error::Error;

/// The folder of our own state in every target.
pub const STATE: &str = ".trainyard";

/// A file that is to be: the name it has in its source, and its path in the target.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub source: &'a str,
    pub target: &'a str,
}

/// # Errors
/// A name that cannot be a file's, or two that exclude each other. Nothing has been written.
pub fn check<'a>(names: impl Iterator<Item = Name<'a>> + Clone) -> Result<(), Error> {
    for name in names.clone() {
        if let Some(why) = wrong(name.target) {
            return Err(Error::config(format!(
                "{:?} cannot be a file of the target: {why}; leave it out with IGNORE_PATTERNS, or rename it at its source. \
                 Nothing was written",
                name.source
            )));
        }
    }
    let mut all: Vec<Name<'_>> = names.collect();
    // most lists come in this order, which takes one look
    all.sort_by_key(|name| name.target);
    for (one, other) in all.iter().zip(all.iter().skip(1)) {
        if one.target == other.target {
            let why = format!("would both be written to {:?}", one.target);
            return Err(conflict(one.source, other.source, &why));
        }
    }
    let mut above = "";
    for name in &all {
        let parent = name.target.rsplit_once('/').map_or("", |(parent, _)| parent);
        if parent == above {
            continue;
        }
        above = parent;
        for folder in name.target.match_indices('/').map(|(at, _)| &name.target[..at]) {
            if let Ok(at) = all.binary_search_by_key(&folder, |file| file.target) {
                let why = format!("cannot both be there: {folder:?} would be file and folder");
                return Err(conflict(all[at].source, name.source, &why));
            }
        }
    }
    Ok(())
}

fn conflict(one: &str, other: &str, why: &str) -> Error {
    Error::config(format!("{one:?} and {other:?} {why}; leave one out with IGNORE_PATTERNS. Nothing was written"))
}

fn wrong(path: &str) -> Option<&'static str> {
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

    fn of(names: &[&str]) -> Result<(), String> {
        check(names.iter().map(|name| Name { source: name, target: name })).map_err(|e| e.text)
    }

    #[test]
    fn names_that_cannot_be() {
        for bad in ["../x", "a/../../x", "a//b", "/a", "a/", "", "a/./b", "a\0b", ".trainyard/state", &"x".repeat(256)]
        {
            let text = of(&["fine", bad]).expect_err(bad);
            assert!(text.contains(&format!("{bad:?}")), "{text}");
        }
        assert_eq!(of(&["a", "b/c", "b/d", "..a/b..", ".trainyard2/x", "ü/ [1] 100%.txt"]), Ok(()));
    }

    #[test]
    fn names_that_exclude_each_other() {
        for pair in [["a", "a/b"], ["a/b/c", "a/b"], ["x", "x"], ["d/e/f", "d"]] {
            let text = of(&["0", pair[0], "a-b", pair[1]]).unwrap_err();
            assert!(text.contains(&format!("{:?}", pair[0])) && text.contains(&format!("{:?}", pair[1])), "{text}");
        }
    }
}
