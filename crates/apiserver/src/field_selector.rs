//! Parses field selectors, and matches objects with them.

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
            terms.push(term(&part).map_err(|fault| match fault {
                Fault::NoOperator => format!("invalid selector: '{text}'; can't understand '{part}'"),
                Fault::Escape(what) => format!("invalid field selector: {what}"),
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
}
