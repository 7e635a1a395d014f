//! An error and its causes as one line of text.

use std::error::Error;

/// An error and its sources, joined with `: `. A source whose text is there already is left out: our errors never repeat their
/// sources, kube's and hyper's do.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        #[source]
        source: Option<Box<Link>>,
    }

    #[test]
    fn no_text_stands_twice() {
        let link = |text, source| Link { text, source };
        let disk = || link("the disk is full", None);
        let plain = link("cannot write /a", Some(Box::new(disk())));
        assert_eq!(error_chain(&plain), "cannot write /a: the disk is full");
        let repeats = link("cannot write /a: the disk is full", Some(Box::new(disk())));
        assert_eq!(error_chain(&repeats), "cannot write /a: the disk is full");
    }
}
