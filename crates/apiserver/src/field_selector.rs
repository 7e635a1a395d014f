//! Parses field selectors, and matches objects with them.

use objects::selector::Signs;

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub equal: bool,
}

/// Why a text is no field selector, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    #[error("invalid selector: '{text}'; can't understand '{part}'")]
    NoOperator { text: String, part: String },
    #[error("invalid field selector: {what}")]
    Escape { what: String },
}

/// All terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(pub Vec<FieldTerm>);

impl FieldSelector {
    /// Parses `a.b=c,d!=e`; values may escape `,`, `=` and `\` with a backslash.
    ///
    /// # Errors
    /// What is wrong, in upstream's words (`k8s.io/apimachinery/pkg/fields`).
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            terms.push(term(&part).map_err(|fault| match fault {
                Fault::NoOperator => FieldSelectorError::NoOperator { text: text.to_owned(), part: part.clone() },
                Fault::Escape(what) => FieldSelectorError::Escape { what },
            })?);
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

    /// Adds what the JSON of each object has that it selects.
    pub(crate) fn add_signs(&self, signs: &mut Signs) {
        self.0.iter().filter(|term| term.equal).for_each(|term| signs.ask_for(&term.value));
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

/// Why a part of a field selector is no term.
enum Fault {
    NoOperator,
    Escape(String),
}

fn term(part: &str) -> Result<FieldTerm, Fault> {
    let bytes = part.as_bytes();
    let at = part.char_indices().find(|(i, c)| {
        let rest = &part[*i..];
        (*c == '=' || rest.starts_with("!=")) && (*i == 0 || bytes.get(i - 1) != Some(&b'\\'))
    });
    let (field, rest) = part.split_at(at.ok_or(Fault::NoOperator)?.0);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
    };
    let mut out = String::new();
    let mut escaped = false;
    for c in value.chars() {
        match c {
            '\\' | ',' | '=' if escaped => {
                out.push(c);
                escaped = false;
            }
            _ if escaped => return Err(Fault::Escape(format!("invalid escape sequence: \\{c}"))),
            '\\' => escaped = true,
            // by its number, in decimal
            ',' | '=' => return Err(Fault::Escape(format!("unescaped character in value: {}", u32::from(c)))),
            c => out.push(c),
        }
    }
    if escaped {
        return Err(Fault::Escape("invalid escape sequence: \\".to_owned()));
    }
    Ok(FieldTerm { field: field.to_owned(), value: out, equal })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn what_fields_select_has_their_signs() {
        let objects = [
            serde_json::json!({"metadata": {"name": "a/b"}, "status": {"phase": "Pending", "count": 2, "is": true}}),
            serde_json::json!({"metadata": {"name": "x"}, "status": {"phase": "\"quoted\" é"}}),
            serde_json::json!({"metadata": {"name": "plain"}}),
        ];
        let selectors = [
            "metadata.name=a/b",
            "metadata.name=plain,status.phase!=Pending",
            "status.phase=Pending",
            "status.phase=\"quoted\" é",
            "status.count=2",
            "status.count=0",
            "status.is=true",
            "status.is=false",
            "status.phase=",
        ];
        let mut refused = 0;
        for (object, text) in objects.iter().flat_map(|object| selectors.map(|text| (object, text))) {
            let value = |field: &str| {
                let value = field.split('.').fold(object, |object, member| &object[member]);
                // fields that are not there have values all the same
                Some(match field {
                    "status.count" => value.as_i64().unwrap_or_default().to_string(),
                    "status.is" => value.as_bool().unwrap_or_default().to_string(),
                    _ => value.as_str().unwrap_or_default().to_owned(),
                })
            };
            let selector = FieldSelector::parse(text).unwrap();
            let mut signs = Signs::default();
            selector.add_signs(&mut signs);
            let may = signs.are_in(object.to_string().as_bytes());
            assert!(may || !selector.matches(value), "{text} {object}");
            refused += usize::from(!may);
        }
        assert_eq!(refused, 6);
    }
}
