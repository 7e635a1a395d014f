//! YAML 1.1 as PyYAML's safe loader reads it: `no` is false, `010` is 8, `1:30` is 90, `1e3` is a text, `<<` merges, the last of
//! two equal keys wins. The source of each rule is yaml.org's type repository (yaml.org/type) and what PyYAML 6.0 does.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use regex::Regex;

use crate::tabs::Tabs;
use crate::value::{Map, Value};

/// A place in a file; both count from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Why a text is no YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// What is wrong.
    pub message: String,
    /// Where.
    pub place: Place,
}

/// A key that stands twice in one mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The key.
    pub key: String,
    /// Where it stands again.
    pub place: Place,
    /// Where it stood first.
    pub first: Place,
}

/// A document of a file.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// What it holds.
    pub value: Option<Value>,
    /// Where each value begins, by its path (`$.resources.cpus`).
    pub places: BTreeMap<String, Place>,
    /// Keys that stand twice, as they are written, from the first on.
    pub duplicates: Vec<Duplicate>,
}

/// Values in a document, aliases counted as often as they are used: what keeps a short file from growing without bound.
const MAX_VALUES: usize = 200_000;
/// Collections in collections.
const MAX_DEPTH: usize = 100;

/// The documents of a text. None for a text without any.
pub fn documents(text: &str) -> Result<Vec<Document>, YamlError> {
    if let Some(line) = ends_before_it_begins(text) {
        let place = Place { line, column: 1 };
        return Err(YamlError { message: "did not find a document before `...`".into(), place });
    }
    let mut parser = Parser::new_from_str(text);
    let mut documents = Vec::new();
    let mut reader = Reader::default();
    let mut tabs = Tabs::of(text);
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| {
            let (at, message) = (error.marker(), error.info().to_owned());
            let place = Place { line: at.line(), column: at.col() + 1 };
            // where a text goes on behind a tab, the parser names where it begins
            let tab = message.contains("tab").then(|| indented_by_tab(text, place.line)).flatten();
            YamlError { message, place: tab.unwrap_or(place) }
        })?;
        if let Some(tabs) = &mut tabs {
            tabs.take(&event, span)?;
        }
        if let Event::DocumentStart(explicit, _) = &event {
            if !explicit && !documents.is_empty() {
                let place = Place { line: span.start.line(), column: span.start.col() + 1 };
                return Err(YamlError { message: "did not find expected <document start>, `---`".into(), place });
            }
            reader = Reader::default();
        } else if matches!(event, Event::DocumentEnd) {
            documents.push(std::mem::take(&mut reader).finish());
        } else {
            reader.take(event, span)?;
        }
    }
    if let Some(tabs) = &mut tabs {
        tabs.finish()?;
    }
    Ok(documents)
}

/// The line of a `...` that nothing precedes.
fn ends_before_it_begins(text: &str) -> Option<usize> {
    let mut lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate();
    let (at, line) = lines.find(|(_, line)| {
        let line = line.trim_start_matches(' ');
        !line.is_empty() && !line.starts_with('#')
    })?;
    let is_end = line.strip_prefix("...").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
    is_end.then_some(at + 1)
}

/// The first tab that a line begins with, from a line on.
fn indented_by_tab(text: &str, from: usize) -> Option<Place> {
    let lines = text.lines().enumerate().skip(from.saturating_sub(1));
    lines
        .filter_map(|(at, line)| {
            let column = line.find(|c| c != ' ')?;
            line.get(column..)?.starts_with('\t').then_some(Place { line: at + 1, column: column + 1 })
        })
        .next()
}

/// A value, where it stood, and whether it was the plain text `<<`.
#[derive(Clone)]
struct Node {
    value: Value,
    place: Place,
    merges: bool,
    /// A scalar as it is written, without its quotes.
    written: Option<String>,
    /// Values in it, itself included.
    size: usize,
    /// Places of what is in it, by path below it.
    below: Vec<(String, Place)>,
}

/// A collection whose end has not come.
struct Open {
    place: Place,
    anchor: usize,
    mapping: bool,
    nodes: Vec<Node>,
}

/// Builds a document from events, without recursion.
#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    root: Option<Node>,
    duplicates: Vec<Duplicate>,
    values: usize,
}

impl Reader {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let place = Place { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = matches!(style, ScalarStyle::Plain);
                let value = scalar(&text, plain, tag.as_deref());
                let value = value.map_err(|error| YamlError { message: error.to_string(), place })?;
                let merges = plain && tag.is_none() && text == "<<";
                let written = Some(text.into_owned());
                self.add(Node { value, place, merges, written, size: 1, below: Vec::new() }, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.add(Node { place, ..node }, 0),
                None => Err(YamlError { message: "an alias inside of what it stands for".into(), place }),
            },
            Event::SequenceStart(_, anchor, tag) => self.begin(place, anchor, tag.as_deref(), false),
            Event::MappingStart(_, anchor, tag) => self.begin(place, anchor, tag.as_deref(), true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, place: Place, anchor: usize, tag: Option<&Tag>, mapping: bool) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlError { message: format!("more than {MAX_DEPTH} collections in one another"), place });
        }
        if let Some(unknown) =
            tag.map(short_tag).filter(|tag| !matches!((tag.as_str(), mapping), ("map", true) | ("seq", false)))
        {
            return Err(YamlError { message: no_constructor(&unknown), place });
        }
        self.open.push(Open { place, anchor, mapping, nodes: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), YamlError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        // as a key it stands at an even place
        let is_value = |at: usize| !open.mapping || at % 2 == 1;
        if let Some((_, node)) = open.nodes.iter().enumerate().find(|(at, node)| node.merges && is_value(*at)) {
            return Err(YamlError { message: no_constructor("merge"), place: node.place });
        }
        let size = open.nodes.iter().fold(1, |sum: usize, node| sum.saturating_add(node.size));
        let (value, below) = if open.mapping { self.mapping(&open)? } else { sequence(open.nodes) };
        self.add(Node { value, place: open.place, merges: false, written: None, size, below }, open.anchor)
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.values = self.values.saturating_add(node.size);
        if self.values > MAX_VALUES {
            return Err(YamlError { message: format!("more than {MAX_VALUES} values"), place: node.place });
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.nodes.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }

    /// A mapping: what `<<` brings comes first, so that the mapping's own keys win.
    fn mapping(&mut self, open: &Open) -> Result<(Value, Vec<(String, Place)>), YamlError> {
        let mut merged = Vec::new();
        let mut own: Vec<(&Node, &Node)> = Vec::new();
        let mut first: BTreeMap<String, Place> = BTreeMap::new();
        for pair in open.nodes.chunks(2) {
            let [key, value] = pair else { continue };
            if let Some(key_text) = &key.written {
                match first.get(key_text) {
                    Some(at) => self.duplicates.push(Duplicate { key: key_text.clone(), place: key.place, first: *at }),
                    None => drop(first.insert(key_text.clone(), key.place)),
                }
            }
            if key.merges {
                merged.extend(to_merge(value)?);
            } else {
                own.push((key, value));
            }
        }
        let mut map: Map = merged.into_iter().collect();
        let mut below = Vec::new();
        for (key, value) in own {
            if matches!(key.value, Value::List(_) | Value::Map(_)) {
                return Err(YamlError {
                    message: "while constructing a mapping: found unhashable key".into(),
                    place: key.place,
                });
            }
            let step = path_step(&key.value);
            below.push((step.clone(), value.place));
            below.extend(value.below.iter().map(|(path, place)| (format!("{step}{path}"), *place)));
            map.insert(key.value.clone(), value.value.clone());
        }
        Ok((Value::Map(map), below))
    }

    fn finish(self) -> Document {
        let Some(root) = self.root else { return Document::default() };
        let mut places: BTreeMap<_, _> =
            root.below.into_iter().map(|(path, place)| (format!("${path}"), place)).collect();
        places.insert("$".into(), root.place);
        let mut duplicates = self.duplicates;
        duplicates.sort_by_key(|twice| twice.place);
        Document { value: Some(root.value).filter(|value| !value.is_null()), places, duplicates }
    }
}

/// A sequence and the places of what is in it.
fn sequence(nodes: Vec<Node>) -> (Value, Vec<(String, Place)>) {
    let mut below = Vec::new();
    let mut list = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.into_iter().enumerate() {
        below.push((format!("[{at}]"), node.place));
        below.extend(node.below.into_iter().map(|(path, place)| (format!("[{at}]{path}"), place)));
        list.push(node.value);
    }
    (Value::List(list), below)
}

/// The pairs that `<<: VALUE` brings; of several mappings, the first wins.
fn to_merge(value: &Node) -> Result<Vec<(Value, Value)>, YamlError> {
    let refuse = |what: &str| YamlError {
        message: format!(
            "while constructing a mapping: expected a mapping or list of mappings for merging, but found {what}"
        ),
        place: value.place,
    };
    match &value.value {
        Value::Map(map) => Ok(map.clone().into_iter().collect()),
        Value::List(list) => {
            let mut pairs = Vec::new();
            for item in list.iter().rev() {
                let Value::Map(map) = item else { return Err(refuse("a list with something else")) };
                pairs.extend(map.clone());
            }
            Ok(pairs)
        }
        _ => Err(refuse("scalar")),
    }
}

/// A step of a path as JSONPath writes it: `.name`, `['odd name']`.
pub fn path_step(key: &Value) -> String {
    match key {
        Value::Int(index) => format!("[{index}]"),
        key => {
            let name = key.text();
            let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if plain { format!(".{name}") } else { format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'")) }
        }
    }
}

/// What YAML's own tags begin with.
const OWN: &str = "tag:yaml.org,2002:";

/// A tag without YAML's own prefix.
fn short_tag(tag: &Tag) -> String {
    let whole = format!("{}{}", tag.handle(), tag.suffix());
    whole.strip_prefix(OWN).map(str::to_owned).unwrap_or(whole)
}

fn no_constructor(tag: &str) -> String {
    let tag = if tag.contains(':') || tag.starts_with('!') { tag.to_owned() } else { format!("{OWN}{tag}") };
    format!("could not determine a constructor for the tag '{tag}'")
}

static FLOAT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ))
    .ok()
});
static INT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$").ok()
});
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^([0-9]{4})-([0-9][0-9]?)-([0-9][0-9]?)",
        r"(?:(?:[Tt]|[ \t]+)([0-9][0-9]?):([0-9]{2}):([0-9]{2})(?:\.([0-9]*))?(?:[ \t]*(Z|([-+])([0-9][0-9]?)(?::([0-9]{2}))?))?)?$"
    ))
    .ok()
});

fn fits(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    LazyLock::force(pattern).as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Why a text is no value of its type.
#[derive(Debug, thiserror::Error)]
enum ScalarError {
    #[error("'{0}' is no boolean")]
    Bool(String),
    #[error("'{0}' is no whole number of at most 38 digits")]
    Int(String),
    #[error("'{0}' is no number")]
    Float(String),
    #[error("'{0}' is no date or time")]
    Time(String),
    #[error("{}", no_constructor(.0))]
    Tag(String),
}

/// A scalar's value by its tag, or, if it is plain, by its form.
fn scalar(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, ScalarError> {
    let tag = match tag.map(short_tag) {
        Some(tag) if tag == "!" => "str".to_owned(),
        Some(tag) => tag,
        None if plain => implicit(text).to_owned(),
        None => "str".to_owned(),
    };
    match tag.as_str() {
        "str" => Ok(Value::Str(text.into())),
        "null" => Ok(Value::Null),
        "bool" => match text.to_lowercase().as_str() {
            "yes" | "true" | "on" => Ok(Value::Bool(true)),
            "no" | "false" | "off" => Ok(Value::Bool(false)),
            _ => Err(ScalarError::Bool(text.to_owned())),
        },
        "int" => integer(text).map(Value::Int).ok_or_else(|| ScalarError::Int(text.to_owned())),
        "float" => number(text).map(Value::Float).ok_or_else(|| ScalarError::Float(text.to_owned())),
        "timestamp" => time(text).ok_or_else(|| ScalarError::Time(text.to_owned())),
        other => Err(ScalarError::Tag(other.to_owned())),
    }
}

/// What a plain scalar is, by its form.
fn implicit(text: &str) -> &'static str {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => "null",
        // the value of a mapping that has a default one
        "=" => "value",
        "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "true" | "True" | "TRUE" | "false" | "False" | "FALSE" | "on"
        | "On" | "ON" | "off" | "Off" | "OFF" => "bool",
        _ if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) => "str",
        _ if fits(&FLOAT, text) => "float",
        _ if fits(&INT, text) => "int",
        // a date alone is one only with two digits for month and day
        _ if text.len() >= 10 && fits(&TIME, text) => "timestamp",
        _ => "str",
    }
}

fn signed(text: &str) -> (bool, &str) {
    (text.starts_with('-'), text.strip_prefix(['+', '-']).unwrap_or(text))
}

fn integer(text: &str) -> Option<i128> {
    let text = text.replace('_', "");
    let (negative, digits) = signed(&text);
    let value = if let Some(bits) = digits.strip_prefix("0b") {
        i128::from_str_radix(bits, 2).ok()?
    } else if let Some(hex) = digits.strip_prefix("0x") {
        i128::from_str_radix(hex, 16).ok()?
    } else if digits.len() > 1 && digits.starts_with('0') {
        i128::from_str_radix(digits, 8).ok()?
    } else {
        digits.split(':').try_fold(0_i128, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))?
    };
    if negative { value.checked_neg() } else { Some(value) }
}

fn number(text: &str) -> Option<f64> {
    let text = text.replace('_', "").to_lowercase();
    let (negative, digits) = signed(&text);
    let value = match digits {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        _ => digits
            .split(':')
            .try_fold(0.0, |sum, part| Some(sum * 60.0 + part.trim_end_matches('.').parse::<f64>().ok()?))?,
    };
    Some(if negative { -value } else { value })
}

/// A date or a time, as Python writes it.
fn time(text: &str) -> Option<Value> {
    let parts = LazyLock::force(&TIME).as_ref()?.captures(text)?;
    let part = |index: usize| parts.get(index).map_or("", |m| m.as_str());
    let value = |index: usize| part(index).parse::<u32>().unwrap_or(0);
    let (year, month, day) = (value(1), value(2), value(3));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    if year == 0 || day == 0 || day > days {
        return None;
    }
    if part(4).is_empty() {
        return Some(Value::Time {
            text: format!("{year:04}-{month:02}-{day:02}"),
            quoted: format!("datetime.date({year}, {month}, {day})"),
        });
    }
    let (hour, minute, second) = (value(4), value(5), value(6));
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    let mut quoted = format!("datetime.datetime({year}, {month}, {day}, {hour}, {minute}");
    let micros: u32 = format!("{:0<6.6}", part(7)).parse().unwrap_or(0);
    if second != 0 || micros != 0 {
        quoted.push_str(&format!(", {second}"));
    }
    if micros != 0 {
        text.push_str(&format!(".{micros:06}"));
        quoted.push_str(&format!(", {micros}"));
    }
    if !part(8).is_empty() {
        let (hours, minutes) = (value(10), value(11));
        text.push_str(&format!("{}{hours:02}:{minutes:02}", if part(9) == "-" { '-' } else { '+' }));
        quoted.push_str(", tzinfo=");
        quoted.push_str(&time_zone(part(9) == "-", hours * 3600 + minutes * 60));
    }
    quoted.push(')');
    Some(Value::Time { text, quoted })
}

/// A time zone as Python writes it; days are negative west of Greenwich.
fn time_zone(is_west: bool, seconds: u32) -> String {
    const DAY: u32 = 24 * 3600;
    let days = seconds.div_ceil(DAY);
    let offset = match (is_west, seconds / DAY, seconds % DAY) {
        (_, 0, 0) => return "datetime.timezone.utc".into(),
        (true, ..) if days * DAY == seconds => format!("days=-{days}"),
        (true, ..) => format!("days=-{days}, seconds={}", days * DAY - seconds),
        (false, 0, seconds) => format!("seconds={seconds}"),
        (false, days, 0) => format!("days={days}"),
        (false, days, seconds) => format!("days={days}, seconds={seconds}"),
    };
    format!("datetime.timezone(datetime.timedelta({offset}))")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Value {
        let mut all = documents(text).unwrap_or_default();
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0).value.unwrap_or(Value::Null)
    }

    #[test]
    fn plain_scalars_are_of_yaml_1_1() {
        for (text, quoted) in [
            ("no", "False"),
            ("On", "True"),
            ("y", "'y'"),
            ("010", "8"),
            ("09", "'09'"),
            ("0o17", "'0o17'"),
            ("1:30", "90"),
            ("1:30.5", "90.5"),
            ("1_000", "1000"),
            ("0x1f", "31"),
            ("-0b11", "-3"),
            ("1e3", "'1e3'"),
            ("1.0e+3", "1000.0"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("+.inf", "inf"),
            ("2024-01-02", "datetime.date(2024, 1, 2)"),
            ("2024-1-2", "'2024-1-2'"),
            ("~", "None"),
            ("1.50", "1.5"),
            ("0", "0"),
            ("-1", "-1"),
            ("'no'", "'no'"),
            ("!!str 1", "'1'"),
            ("!!int '7'", "7"),
        ] {
            assert_eq!(one(text).quoted(), quoted, "{text}");
        }
    }

    #[test]
    fn a_time_is_written_as_python_writes_it() {
        assert_eq!(one("2024-01-02T03:04:05Z").text(), "2024-01-02 03:04:05+00:00");
        assert_eq!(one("2024-01-02 03:04:05.25 -1").text(), "2024-01-02 03:04:05.250000-01:00");
        assert_eq!(one("!!timestamp 2024-01-02").quoted(), "datetime.date(2024, 1, 2)");
        assert!(documents("2024-13-01").is_err());
        for (zone, quoted) in [
            ("Z", "utc"),
            ("+00:00", "utc"),
            ("+1", "(datetime.timedelta(seconds=3600))"),
            ("-05:00", "(datetime.timedelta(days=-1, seconds=68400))"),
            ("-00:30", "(datetime.timedelta(days=-1, seconds=84600))"),
        ] {
            let (dot, whole) = (if quoted == "utc" { "." } else { "" }, one(&format!("2024-01-02 03:04:05 {zone}")));
            let tail = format!("3, 4, 5, tzinfo=datetime.timezone{dot}{quoted})");
            assert!(whole.quoted().ends_with(&tail), "{} {tail}", whole.quoted());
        }
    }

    #[test]
    fn what_pyyaml_refuses_is_refused() {
        for (text, says) in [
            ("a: <<", "tag:yaml.org,2002:merge"),
            ("[a, <<]", "tag:yaml.org,2002:merge"),
            ("a: !!set {b, c}", "tag:yaml.org,2002:set"),
            ("a: !!binary aGk=", "tag:yaml.org,2002:binary"),
            ("a: !mine b", "tag '!mine'"),
            ("a: =", "tag:yaml.org,2002:value"),
            ("...\n%YAML 1.1\n---\na: 1\n", "before `...`"),
            ("# c\n\n...\na: 1\n", "before `...`"),
            ("a: 1\n...\nb: 2\n", "<document start>"),
        ] {
            let error = documents(text).map(|all| all.len()).unwrap_err();
            assert!(error.message.contains(says), "{text}: {error}");
        }
        assert_eq!(documents("a: 1\n...\n---\nb: 2\n...\n").map(|all| all.len()), Ok(2));
        assert_eq!(documents("a: 1\n...\n%YAML 1.1\n---\nb: 2\n").map(|all| all.len()), Ok(2));
        assert_eq!(one("a: '='").quoted(), "{'a': '='}");
        assert_eq!(one("a: '<<'").quoted(), "{'a': '<<'}");
    }

    #[test]
    fn merges_come_before_own_keys_and_the_first_of_several_wins() {
        let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n";
        let value = one(text);
        let c = value.as_map().and_then(|map| map.get("c")).map(Value::quoted);
        assert_eq!(c.as_deref(), Some("{'y': 1, 'z': 2, 'x': 3}"));
    }

    #[test]
    fn the_last_of_equal_keys_wins_and_both_places_are_known() {
        let all = documents("run: a\nname: x\nrun: b\n").unwrap_or_default();
        let document = all.first().cloned().unwrap_or_default();
        assert_eq!(document.value.map(|value| value.quoted()).as_deref(), Some("{'run': 'b', 'name': 'x'}"));
        assert_eq!(document.duplicates.first().map(|twice| (twice.place.line, twice.first.line)), Some((3, 1)));
        // as they are written, and in their order
        let all = documents("a:\n  01: x\n  1: y\n'x': 1\nx: {y: 1, y: 2}\n").unwrap_or_default();
        let keys: Vec<&str> = all.iter().flat_map(|one| &one.duplicates).map(|twice| twice.key.as_str()).collect();
        assert_eq!(keys, ["x", "y"]);
        assert_eq!(document.places.get("$.name").map(|place| (place.line, place.column)), Some((2, 7)));
    }

    #[test]
    fn a_short_text_cannot_grow_without_bound() {
        let mut text = String::from("a0: &a0 [x]\n");
        for n in 1..20 {
            let many = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{many}]\n"));
        }
        assert!(documents(&text).is_err());
        assert!(documents(&"[".repeat(5000)).is_err());
    }
}
