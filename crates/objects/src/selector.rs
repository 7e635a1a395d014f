//! Label selectors: as text (`a=b,c in (d,e),!f`), as `metav1.LabelSelector`, and what they select.

use memchr::memmem::Finder;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    fn matches(&self, labels: &Value) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
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

/// Texts that an object must contain to be selected. Searching for them costs a hundredth of reading the object.
#[derive(Clone, Debug, Default)]
pub struct Signs(Vec<Vec<Finder<'static>>>);

impl Signs {
    /// Adds the value of a field to the search. A value that an absent field may stand for (empty, false, 0), or that JSON may write in
    /// several ways, is not added.
    pub fn ask_for(&mut self, value: &str) {
        let may_be_unsaid = matches!(value, "" | "true" | "false") || value.parse::<f64>().is_ok();
        if is_plain(value) && !may_be_unsaid {
            self.0.push(vec![Finder::new(value).into_owned()]);
        }
    }

    /// Whether the text has at least one sign of each requirement. False is certain: the object is not selected.
    pub fn are_in(&self, json: &[u8]) -> bool {
        self.0.iter().all(|texts| texts.iter().any(|text| text.find(json).is_some()))
    }
}

/// Whether JSON has only one way to write a text: unchanged.
fn is_plain(text: &str) -> bool {
    !text.contains(|c: char| c == '"' || c == '\\' || c.is_control())
}

/// All requirements must hold; without any, everything is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

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

impl Selector {
    /// Parses `a=b,c in (d,e),!f`.
    ///
    /// # Errors
    /// The fault, in upstream's words (`k8s.io/apimachinery/pkg/labels`), without the part that names the option.
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

    /// From the JSON of a `metav1.LabelSelector`; `None` if it is no object or has an unknown operator: such a selector selects nothing.
    pub fn read(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = vec![value.as_str()?.to_owned()];
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let values = expression["values"].as_array().into_iter().flatten();
            let operator = match expression["operator"].as_str()? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(Requirement { key: expression["key"].as_str()?.to_owned(), operator, values });
        }
        Some(Self(requirements))
    }

    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels (an object of texts, or null) satisfy all requirements. An absent label satisfies `NotIn`.
    pub fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// Texts that the compact JSON of each selected object contains.
    pub fn signs(&self) -> Signs {
        let sign = |key: &str, value: Option<&str>| {
            let value = value.filter(|value| is_plain(value)).map_or(String::new(), |value| format!("\"{value}\""));
            is_plain(key).then(|| Finder::new(&format!("\"{key}\":{value}")).into_owned())
        };
        let of = |Requirement { key, operator, values }: &Requirement| match operator {
            Operator::In => values.iter().map(|value| sign(key, Some(value))).collect(),
            Operator::Exists | Operator::GreaterThan | Operator::LessThan => sign(key, None).map(|sign| vec![sign]),
            Operator::NotIn | Operator::DoesNotExist => None,
        };
        Signs(self.0.iter().filter_map(of).collect())
    }

    /// Whether the object's labels satisfy all requirements.
    pub fn selects(&self, object: &Value) -> bool {
        self.matches(&object["metadata"]["labels"])
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_of_what_is_selected_may_be_selected() {
        let labels =
            [json!({"a": "b"}), json!({"a": "b", "x/y": "7"}), json!({}), json!({"a": "\"b"}), json!({"b": "a"})];
        let selectors = ["a=b", "a in (b,c)", "a!=b", "a", "!a", "x/y>3", "a=b,x/y", "b", "c=a"];
        let mut refused = 0;
        for (labels, selector) in labels.iter().flat_map(|labels| selectors.map(|selector| (labels, selector))) {
            let selector = Selector::parse(selector).unwrap();
            let object = json!({"metadata": {"labels": labels}});
            let may = selector.signs().are_in(object.to_string().as_bytes());
            assert!(may || !selector.selects(&object), "{selector:?} {object}");
            refused += usize::from(!may);
        }
        assert!(refused > 10, "{refused}");
        let odd = Selector::read(&json!({"matchLabels": {"a": "\"b"}})).unwrap();
        assert!(odd.signs().are_in(json!({"metadata": {"labels": {"a": "\"b"}}}).to_string().as_bytes()));
    }

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
            assert_eq!(Selector::parse(text).unwrap().selects(&object), selected, "{text}");
        }
        for text in ["a in", "a in (", "=", "a,,b", "a b", "a=b=c", "a in (1", "a>x", "-a=b"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn selects_as_kubernetes_does() {
        let cases = [
            (json!({}), json!({"a": "1"}), true),
            (json!({"matchLabels": {"a": "1"}}), json!({"a": "1", "b": "2"}), true),
            (json!({"matchLabels": {"a": "1"}}), json!({"a": "2"}), false),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
                json!({"a": "2"}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), json!({}), true),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
                json!({"a": "1"}),
                false,
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), json!({"a": ""}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), json!({"a": ""}), false),
        ];
        for (selector, labels, want) in cases {
            let parsed = Selector::read(&selector).expect("a valid selector");
            assert_eq!(parsed.matches(&labels), want, "{selector} on {labels}");
        }
        assert_eq!(Selector::read(&json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})), None);
        assert_eq!(Selector::read(&Value::Null), None);
    }
}
