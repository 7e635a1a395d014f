//! Lists of indexes as Jobs write them: `0,3-5,7`.

/// An interval, both ends included.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |part: &str| -> Result<i64, String> {
        let index: i64 = part.parse().map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        if index >= completions { Err(format!("too large index: {part:?}")) } else { Ok(index) }
    };
    match parts.as_slice() {
        [one] => number(one).map(|x| (x, x)),
        [low, high] => {
            let (x, y) = (number(low)?, number(high)?);
            if x >= y { Err(format!("non-increasing order, previous: {x}, current: {y}")) } else { Ok((x, y)) }
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        )),
    }
}

/// How many indexes below `completions` a list names.
///
/// # Errors
/// What is wrong with the list.
pub fn count(list: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    if list.is_empty() {
        return Ok(0);
    }
    for part in list.split(',') {
        let (x, y) = interval(part, completions)?;
        if let Some(last) = last
            && last >= x
        {
            return Err(format!("non-increasing order, previous: {last}, current: {x}"));
        }
        total += y - x + 1;
        last = Some(y);
    }
    Ok(total)
}

/// The first index that both lists name, as upstream walks through them, side by side: what stands after a greater one may be missed.
/// Parts that cannot be read name none.
pub fn overlap(a: &str, b: &str, completions: i64) -> Option<i64> {
    let read = |list: &str| -> Vec<(i64, i64)> {
        list.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (a, b) = (read(a), read(b));
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    loop {
        let (first, second) = (*a.peek()?, *b.peek()?);
        if first.0 <= second.1 && second.0 <= first.1 {
            return Some(first.0.max(second.0));
        }
        if first.0 <= second.0 {
            a.next();
        } else {
            b.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(count("", 3), Ok(0));
        assert_eq!(count("0,2-4", 5), Ok(4));
        assert_eq!(count("1,0", 5).unwrap_err(), "non-increasing order, previous: 1, current: 0");
        assert_eq!(count("0-5", 5).unwrap_err(), "too large index: \"5\"");
        assert_eq!(count("a", 5).unwrap_err(), "cannot convert string to integer for index: \"a\"");
        assert!(count("1-2-3", 5).is_err());
        assert_eq!(overlap("0,3-5", "1-2,4", 9), Some(4));
        assert_eq!(overlap("0", "1", 9), None);
        assert_eq!(overlap("1,0", "0", 9), None);
        assert_eq!(overlap("x,0", "0,y", 9), Some(0));
    }
}
