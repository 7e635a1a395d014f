//! Progress bars: lines that are redrawn by carriage returns, or printed anew for each step.

use regex::Regex;
use std::sync::LazyLock;

/// The last state of a line that a log holds whole, with its carriage returns.
pub fn last_state(line: &str) -> &str {
    line.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or_default()
}

/// Whether a line is a progress bar: those of tqdm, pip and Hugging Face, which launchers may print line by line.
pub fn is_bar(text: &str) -> bool {
    static BAR: LazyLock<Regex> = LazyLock::new(|| {
        let tqdm = r"\d{1,3}%\|[^|]*\|";
        let counts = r"\d+(?:\.\d+)?[kMGT]?(?:it|B|ba|ex|examples)? ?\[\d{2}:\d{2}(?::\d{2})?,";
        let blocks = r"[━╸╺█▏▎▍▌▋▊▉#=]{8,}.*\d";
        Regex::new(&format!("(?:{tqdm})|(?:{counts})|^ *(?:{blocks})")).expect("invariant: the expression is valid")
    });
    text.len() <= 4096 && BAR.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_state_of_a_redrawn_line_stands() {
        assert_eq!(last_state("\r 1%\r 2%\r"), " 2%");
    }

    #[test]
    fn bars_are_known_and_numbers_are_none() {
        for bar in [
            "epoch 0:  17%|█▋        | 2/12 [00:00<00:03,  3.1it/s, loss=0.4]",
            "100%|##########| 10/10 [00:01<00:00,  9.9it/s]",
            "0it [00:00, ?it/s]",
            "   ━━━━━━━━━━━━━━━━━━━━ 1.2/3.4 MB 5.6 MB/s eta 0:00:01",
        ] {
            assert!(is_bar(bar), "{bar}");
        }
        for line in
            ["loss 0.5", "accuracy: 17%", "| a | b |", "step 3/12 done", "=====", "# heading", "epoch 1: 50% done"]
        {
            assert!(!is_bar(line), "{line}");
        }
    }
}
