//! The two formats of metrics: Prometheus' plain text (0.0.4) and OpenMetrics 1.0.
//!
//! They differ in comments: OpenMetrics names a counter's family without `_total`, has units, and ends with `# EOF`. Samples are the same
//! in what our programs serve: there are no exemplars and no timestamps.

/// Media type of the plain text format.
pub const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Media type of OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a client asks for OpenMetrics: its `Accept` header names it, and prefers no plain text.
pub fn wants_open_metrics(accept: &str) -> bool {
    let mut best = (0.0_f64, 0.0_f64);
    for part in accept.split(',') {
        let mut words = part.split(';').map(str::trim);
        let media = words.next().unwrap_or_default().to_ascii_lowercase();
        let weight = words.find_map(|word| word.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
        match media.as_str() {
            "application/openmetrics-text" => best.0 = best.0.max(weight),
            "text/plain" => best.1 = best.1.max(weight),
            _ => {}
        }
    }
    best.0 > 0.0 && best.0 >= best.1
}

/// OpenMetrics text as plain text.
pub fn to_plain(open: &str) -> String {
    // a family's comments are in any order: its type says whether it is a counter
    let counter =
        |line: &str| line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter")).map(str::to_owned);
    let counters: std::collections::BTreeSet<String> = open.lines().filter_map(counter).collect();
    let mut plain = String::with_capacity(open.len());
    for line in open.lines() {
        let comment = ["# HELP ", "# TYPE "].into_iter().find_map(|word| Some((word, line.strip_prefix(word)?)));
        match comment {
            Some((word, rest)) => {
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let ending = if counters.contains(name) { "_total" } else { "" };
                plain.extend([word, name, ending, " ", text, "\n"]);
            }
            None if line == "# EOF" || line.starts_with("# UNIT ") => {}
            None => plain.extend([line, "\n"]),
        }
    }
    plain
}

/// Plain text as OpenMetrics.
pub fn to_open(plain: &str) -> String {
    let mut open = String::with_capacity(plain.len());
    for line in plain.lines() {
        let comment = ["# HELP ", "# TYPE "].into_iter().find_map(|word| Some((word, line.strip_prefix(word)?)));
        match comment {
            Some((word, rest)) => {
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                // only counters end so
                open.extend([word, name.strip_suffix("_total").unwrap_or(name), " ", text, "\n"]);
            }
            None => open.extend([line, "\n"]),
        }
    }
    open.push_str("# EOF\n");
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_the_default() {
        for (accept, open) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            ("application/openmetrics-text;q=0.2, text/plain", false),
            ("application/openmetrics-text;q=0", false),
        ] {
            assert_eq!(wants_open_metrics(accept), open, "{accept}");
        }
    }

    #[test]
    fn each_format_becomes_the_other() {
        let open = "# HELP a Of a.\n# TYPE a counter\na_total{x=\"# TYPE y counter\"} 1\n# HELP b_seconds B.\n# TYPE b_seconds gauge\n\
                    # UNIT b_seconds seconds\nb_seconds 2\n# EOF\n";
        let plain = "# HELP a_total Of a.\n# TYPE a_total counter\na_total{x=\"# TYPE y counter\"} 1\n# HELP b_seconds B.\n\
                     # TYPE b_seconds gauge\nb_seconds 2\n";
        assert_eq!(to_plain(open), plain);
        assert_eq!(to_open(plain), open.replace("# UNIT b_seconds seconds\n", ""));
    }
}
