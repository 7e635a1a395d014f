//! How far a job's initializers are, read from their log lines: `dataset-initializer: 3.1 of 40 GB (7 %), 98 MB/s, 4 minutes left`.

/// Width of the bar in characters.
const BAR: usize = 16;

/// A line about progress, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download<'a> {
    /// `3.1 of 40 GB`
    part: &'a str,
    percent: usize,
    /// `98 MB/s`
    rate: &'a str,
    /// `4 minutes left`
    left: Option<&'a str>,
}

/// What a log line of an initializer tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News<'a> {
    Progress(Download<'a>),
    /// All is there.
    Done,
}

/// Whether a step fills a folder.
pub fn is_initializer(step: &str) -> bool {
    step.ends_with("-initializer")
}

/// What a line of `step` tells of its download; `None`: something else, or another program's line.
pub fn news<'a>(step: &str, line: &'a str) -> Option<News<'a>> {
    let (_, text) = line.split_once("-initializer: ").filter(|_| is_initializer(step))?;
    if text.starts_with("done: ") {
        return Some(News::Done);
    }
    let (part, rest) = text.split_once(" (")?;
    let (percent, rest) = rest.split_once(" %), ")?;
    let (rate, left) = rest.split_once(", ").map_or((rest, None), |(rate, left)| (rate, Some(left)));
    let is_whole = part.contains(" of ") && rate.ends_with("/s") && left.is_none_or(|left| left.ends_with(" left"));
    let percent = percent.parse::<usize>().ok().filter(|percent| is_whole && *percent <= 100)?;
    Some(News::Progress(Download { part, percent, rate, left }))
}

impl Download<'_> {
    /// What is there, of what will be: `3.1 of 40 GB`.
    pub fn part(&self) -> &str {
        self.part
    }

    /// 0 to 100.
    pub fn percent(&self) -> usize {
        self.percent
    }

    /// `98 MB/s`
    pub fn rate(&self) -> &str {
        self.rate
    }

    /// `4 minutes left`; `None`: it cannot be said.
    pub fn left(&self) -> Option<&str> {
        self.left
    }

    /// `[###             ] 19% 3.1 of 40 GB 98 MB/s 4 minutes left`
    pub fn bar(&self) -> String {
        let done = self.percent * BAR / 100;
        let left = self.left.map(|left| format!(" {left}")).unwrap_or_default();
        let (percent, part, rate) = (self.percent, self.part, self.rate);
        format!("[{}{}] {percent}% {part} {rate}{left}", "#".repeat(done), " ".repeat(BAR - done))
    }

    /// `3.1 of 40 GB, 4 minutes left`
    pub fn short(&self) -> String {
        self.left.map_or_else(|| self.part.to_owned(), |left| format!("{}, {left}", self.part))
    }
}

/// How far a download is, by the newest of its lines that tells it.
pub fn newest<'a>(step: &str, lines: impl DoubleEndedIterator<Item = &'a str>) -> Option<String> {
    match lines.rev().find_map(|line| news(step, line))? {
        News::Progress(download) => Some(download.short()),
        News::Done => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_how_far_a_download_is() {
        let line = "dataset-initializer: 3.1 of 40 GB (7 %), 98 MB/s, 4 minutes left";
        let step = "dataset-initializer";
        let Some(News::Progress(download)) = news(step, line) else { panic!() };
        assert_eq!(download.bar(), "[#               ] 7% 3.1 of 40 GB 98 MB/s 4 minutes left");
        assert_eq!(download.short(), "3.1 of 40 GB, 4 minutes left");
        let whole = "model-initializer: 812 of 812 MB (100 %), 1.2 GB/s";
        let first = "model-initializer: 3 files, 3 to fetch (812 MB)";
        assert_eq!(newest("model-initializer", [first, whole].into_iter()).as_deref(), Some("812 of 812 MB"));
        assert_eq!(newest("model-initializer", [whole, "model-initializer: done: 3 files in /x"].into_iter()), None);
        for other in [
            first,
            "model-initializer: warning: hf://a (1 %), b",
            "model-initializer: 1 of 2 B (300 %), 1 B/s",
            "model-initializer: 1 of 2 B (x %), 1 B/s",
            "step 3 of 4 (7 %), 1 it/s",
        ] {
            assert_eq!(news("model-initializer", other), None, "{other}");
        }
        assert_eq!(news("node-0", line), None);
    }
}
