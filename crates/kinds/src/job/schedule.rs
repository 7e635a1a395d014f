//! What is wrong with the schedule of a CronJob, in the words of upstream's parser (`github.com/robfig/cron` 3).

/// The fields of a schedule: smallest and greatest value, and the names that stand for values from the smallest on.
const FIELDS: [(u64, u64, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];
const DESCRIPTORS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Why a schedule cannot be read; `None` for one that can. `is_zone` says whether a time zone has this name.
pub fn fault(schedule: &str, is_zone: impl Fn(&str) -> bool) -> Option<String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let (_, value) = schedule.split_once('=')?;
        let (zone, after) = value.split_once(' ').unwrap_or((value, ""));
        if !is_zone(zone) {
            return Some(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = after.trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let parts = fields.iter().zip(FIELDS).flat_map(|(text, field)| text.split(',').map(move |part| (part, field)));
    parts.filter(|(part, _)| !part.is_empty()).find_map(|(part, field)| range(part, field))
}

fn descriptor(text: &str) -> Option<String> {
    if let Some(every) = text.strip_prefix("@every ") {
        let is_one = api::config::duration_secs(every).is_some();
        return (!is_one).then(|| format!("failed to parse duration {text}: time: invalid duration {every:?}"));
    }
    (!DESCRIPTORS.contains(&text)).then(|| format!("unrecognized descriptor: {text}"))
}

fn range(text: &str, (min, max, names): (u64, u64, &[&str])) -> Option<String> {
    read(text, min, max, names).err()
}

fn read(text: &str, min: u64, max: u64, names: &[&str]) -> Result<(), String> {
    let halves: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = halves[0].split('-').collect();
    let single = ends.len() == 1;
    let number = |text: &str| {
        let named = names.iter().zip(min..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map_or_else(|| whole(text), |(_, value)| Ok(value))
    };
    let (start, mut end) = if ends[0] == "*" || ends[0] == "?" {
        (min, max)
    } else {
        let start = number(ends[0])?;
        match ends.len() {
            1 => (start, start),
            2 => (start, number(ends[1])?),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match halves.len() {
        1 => 1,
        2 => {
            let step = whole(halves[1])?;
            if single {
                end = max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < min {
        Err(format!("beginning of range ({start}) below minimum ({min}): {text}"))
    } else if end > max {
        Err(format!("end of range ({end}) above maximum ({max}): {text}"))
    } else if start > end {
        Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"))
    } else if step == 0 {
        Err(format!("step of range should be a positive number: {text}"))
    } else {
        Ok(())
    }
}

fn whole(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"));
    }
    match text.parse::<i64>() {
        Ok(number) => u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: value out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn schedules_are_read_as_upstream_reads_them() {
        let fault = |text| fault(text, |zone| zone == "UTC");
        for good in
            ["* * * * *", "*/5 0-3,7 1 jan-MAR sun", "@daily", "TZ=UTC 0 0 * * ?", "@every 1h30m", "1/7 * * * *"]
        {
            assert_eq!(fault(good), None, "{good}");
        }
        for (bad, why) in [
            ("", "expected exactly 5 fields, found 0: []"),
            ("* *", "expected exactly 5 fields, found 2: [* *]"),
            ("61 * * * *", "end of range (61) above maximum (59): 61"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ] {
            assert_eq!(fault(bad).as_deref(), Some(why), "{bad}");
        }
    }
}
