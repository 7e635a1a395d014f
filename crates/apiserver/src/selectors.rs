//! Label and field selectors.

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

impl Requirement {
    fn matches(&self, labels: Option<&Value>) -> bool {
        let value = labels.and_then(|l| l.get(&self.key)).and_then(Value::as_str);
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(|v| number(v));
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.iter().any(|w| w == v)),
            Operator::NotIn => value.is_none_or(|v| self.values.iter().all(|w| w != v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(number).zip(bound()).is_some_and(|(v, b)| v > b),
            Operator::LessThan => value.and_then(number).zip(bound()).is_some_and(|(v, b)| v < b),
        }
    }
}

/// All requirements must hold; none: everything is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(pub Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `=`, `==`, `!=`, `in`, `notin`, `!`, `(`, `)`, `,`, `<`, `>`
    Mark(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Mark(mark) => mark,
            Self::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '<' | '>');
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let mark = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"].into_iter().find(|m| rest.starts_with(m));
        let used = match mark {
            Some(mark) => {
                out.push(Token::Mark(mark));
                mark.len()
            }
            None => {
                debug_assert!(!special(first));
                let end = rest.find(|c: char| special(c) || c.is_whitespace()).unwrap_or(rest.len());
                out.push(match &rest[..end] {
                    "in" => Token::Mark("in"),
                    "notin" => Token::Mark("notin"),
                    word => Token::Word(word.to_owned()),
                });
                end
            }
        };
        rest = rest[used..].trim_start();
    }
    out.push(Token::End);
    out
}

impl LabelSelector {
    /// Parses `a=b,c in (d,e),!f`.
    ///
    /// # Errors
    /// What is wrong, in upstream's words (`k8s.io/apimachinery/pkg/labels`), without the part that names the option.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text);
        let mut parser = Parser { tokens, at: 0 };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                Token::End => break,
                Token::Word(_) | Token::Mark("!" | "in" | "notin") => {
                    requirements.push(parser.requirement()?);
                    match parser.next() {
                        Token::End => break,
                        Token::Mark(",") => match parser.peek() {
                            Token::Word(_) | Token::Mark("!" | "in" | "notin") => {}
                            other => {
                                return Err(format!("found '{}', expected: identifier after ','", other.text()));
                            }
                        },
                        other => {
                            return Err(format!("found '{}', expected: ',' or 'end of string'", other.text()));
                        }
                    }
                }
                other => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text()));
                }
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self(requirements))
    }

    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|m| m.get("labels"));
        self.0.iter().all(|r| r.matches(labels))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = *self.peek() == Token::Mark("!");
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            Token::Mark(word @ ("in" | "notin")) => word.to_owned(),
            other => {
                return Err(format!("unable to parse requirement: found '{}', expected: identifier", other.text()));
            }
        };
        check_key(&key)?;
        if absent {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        let operator = match self.peek() {
            Token::End | Token::Mark(",") => {
                return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
            }
            Token::Mark("=" | "==") => Operator::In,
            Token::Mark("!=") => Operator::NotIn,
            Token::Mark("in") => Operator::In,
            Token::Mark("notin") => Operator::NotIn,
            Token::Mark(">") => Operator::GreaterThan,
            Token::Mark("<") => Operator::LessThan,
            other => {
                return Err(format!(
                    "unable to parse requirement: found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        let set = matches!(self.peek(), Token::Mark("in" | "notin"));
        self.at += 1;
        let mut values = if set { self.set()? } else { vec![self.exact()?] };
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            if let Some(bad) = values.iter().find(|v| v.parse::<i64>().is_err()) {
                return Err(format!(
                    "unable to parse requirement: values[0]: Invalid value: {bad:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                ));
            }
        } else {
            for (i, value) in values.iter().enumerate() {
                check_value(&key, i, value)?;
            }
        }
        values.sort();
        values.dedup();
        Ok(Requirement { key, operator, values })
    }

    fn exact(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Mark(",") => Ok(String::new()),
            Token::Word(_) => Ok(self.next().text().to_owned()),
            Token::Mark(word @ ("in" | "notin")) => {
                let word = (*word).to_owned();
                self.at += 1;
                Ok(word)
            }
            other => Err(format!("unable to parse requirement: found '{}', expected: identifier", other.text())),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Mark("(") => {}
            other => return Err(format!("unable to parse requirement: found '{}' expected: '('", other.text())),
        }
        let mut values = Vec::new();
        let mut after_comma = true;
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word);
                    after_comma = false;
                }
                Token::Mark(word @ ("in" | "notin")) => {
                    values.push(word.to_owned());
                    after_comma = false;
                }
                Token::Mark(",") => {
                    if after_comma {
                        values.push(String::new());
                    }
                    after_comma = true;
                }
                Token::Mark(")") => {
                    if after_comma {
                        values.push(String::new());
                    }
                    return Ok(values);
                }
                other => {
                    let wanted = if after_comma || values.is_empty() { "',', ')' or identifier" } else { "',' or ')'" };
                    return Err(format!("unable to parse requirement: found '{}', expected: {wanted}", other.text()));
                }
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let faults = api::names::qualified_name_faults(key);
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("unable to parse requirement: <nil>: Invalid value: {key:?}: {}", faults.join("; ")))
}

fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    let faults = api::names::label_value_faults(value);
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("unable to parse requirement: values[{index}][{key}]: Invalid value: {value:?}: {}", faults.join("; ")))
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub equal: bool,
}

/// All terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(pub Vec<FieldTerm>);

impl FieldSelector {
    /// Parses `a.b=c,d!=e`; values may escape `,`, `=` and `\` with a backslash.
    ///
    /// # Errors
    /// What is wrong, in upstream's words (`k8s.io/apimachinery/pkg/fields`).
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            let term = term(&part).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            terms.push(term);
        }
        Ok(Self(terms))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all terms hold, by a function that gives a field's value (absent: empty).
    pub fn matches(&self, value: impl Fn(&str) -> Option<String>) -> bool {
        self.0.iter().all(|term| (value(&term.field).unwrap_or_default() == term.value) == term.equal)
    }

    /// The value that the selector pins a field to.
    pub fn pinned(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|t| t.equal && t.field == field).map(|t| t.value.as_str())
    }
}

fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        let last = parts.last_mut().expect("invariant: never empty");
        match c {
            _ if escaped => {
                last.push(c);
                escaped = false;
            }
            '\\' => {
                last.push(c);
                escaped = true;
            }
            ',' => parts.push(String::new()),
            c => last.push(c),
        }
    }
    parts
}

fn term(part: &str) -> Option<FieldTerm> {
    let bytes = part.as_bytes();
    let at = part.char_indices().find(|(i, c)| {
        let rest = &part[*i..];
        (*c == '=' || rest.starts_with("!=")) && (*i == 0 || bytes.get(i - 1) != Some(&b'\\'))
    })?;
    let (field, rest) = part.split_at(at.0);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?),
    };
    let mut out = String::new();
    let mut escaped = false;
    for c in value.chars() {
        match c {
            '\\' | ',' | '=' if escaped => {
                out.push(c);
                escaped = false;
            }
            _ if escaped => return None,
            '\\' => escaped = true,
            ',' | '=' => return None,
            c => out.push(c),
        }
    }
    (!escaped).then(|| FieldTerm { field: field.to_owned(), value: out, equal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selects_by_labels() {
        let object = json!({"metadata": {"labels": {"a": "1", "in": "x", "n": "5"}}});
        for (text, selected) in [
            ("", true),
            ("a", true),
            ("a=1", true),
            ("a==1,in=x", true),
            ("a!=1", false),
            ("b!=1", true),
            ("a in (1, 2)", true),
            ("a notin (2,3)", true),
            ("b notin (2)", true),
            ("!a", false),
            ("!b", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("b=", false),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), selected, "{text}");
        }
        for text in ["a in", "a in (", "=", "a,,b", "a b", "a=b=c", "a in (1", "a>x", "-a=b"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn selects_by_fields() {
        let value = |field: &str| (field == "metadata.name").then(|| "a,b".to_owned());
        for (text, selected) in
            [("metadata.name=a\\,b", true), ("metadata.name!=x", true), ("x=", true), ("x!=", false), ("", true)]
        {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(value), selected, "{text}");
        }
        assert!(FieldSelector::parse("nonsense").is_err());
    }
}
