//! The known name that is most like an unknown one, by the measure that SkyPilot's messages use: twice the characters in common
//! runs (longest run first, then left and right of it: Ratcliff and Obershelp, 1988) over all characters, at least 0.6.

/// The name most like `word`; of equals the last in the alphabet. None where nothing is near.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.into_iter().map(|name| (ratio(name, word), name)).filter(|(score, _)| *score >= 0.6);
    scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1))).map(|(_, name)| name)
}

/// Up to `count` names like `word`, the nearest first.
pub fn near<'a>(word: &str, names: impl IntoIterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> =
        names.into_iter().map(|name| (ratio(name, word), name)).filter(|(score, _)| *score >= 0.6).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.cmp(a.1)));
    scored.into_iter().take(count).map(|(_, name)| name).collect()
}

/// How alike two texts are: 0 to 1.
fn ratio(a: &str, b: &str) -> f64 {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.is_empty() && b.is_empty() {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "lengths of names")]
    let share = 2.0 * common(&a, &b) as f64 / (a.len() + b.len()) as f64;
    share
}

/// Characters in common runs.
fn common(a: &[char], b: &[char]) -> usize {
    let mut sum = 0;
    let mut open = vec![(0, a.len(), 0, b.len())];
    while let Some((a_from, a_to, b_from, b_to)) = open.pop() {
        let (at_a, at_b, run) =
            longest(a.get(a_from..a_to).unwrap_or_default(), b.get(b_from..b_to).unwrap_or_default());
        if run > 0 {
            sum += run;
            open.push((a_from, a_from + at_a, b_from, b_from + at_b));
            open.push((a_from + at_a + run, a_to, b_from + at_b + run, b_to));
        }
    }
    sum
}

/// The longest common run: where it begins in each, and how long it is; the first in `a`, then in `b`, of equals.
fn longest(a: &[char], b: &[char]) -> (usize, usize, usize) {
    let mut best = (0, 0, 0);
    let mut ends = vec![0_usize; b.len() + 1];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![0_usize; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            if x == y {
                let run = ends.get(j).copied().unwrap_or(0) + 1;
                if let Some(end) = row.get_mut(j + 1) {
                    *end = run;
                }
                if run > best.2 {
                    best = (i + 1 - run, j + 1 - run, run);
                }
            }
        }
        ends = row;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(nearest("runn", ["run", "name", "resources"]), Some("run"));
        assert_eq!(nearest("accelerator", ["accelerators", "accelerator_args"]), Some("accelerators"));
        assert_eq!(nearest("foo", ["run", "name"]), None);
        assert_eq!(
            near("us-east-11", ["us-east-1", "us-east-2", "us-west-2", "eu-west-1"], 3),
            ["us-east-1", "us-east-2", "us-west-2"]
        );
    }
}
