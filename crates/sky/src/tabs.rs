//! Tabs where YAML takes none, by the rules of libyaml's scanner: outside of `[]` and `{}` a token does not stand behind a tab where a key could
//! begin (at the start of a line, behind `- `), a plain text that goes over lines is not indented by one, and neither is the text of `|` and `>`.

use granit_parser::{Event, ScalarStyle, Span, StructureStyle};

use crate::yaml::{Place, YamlError};

/// Looks at a text's tabs while its events come.
pub(crate) struct Tabs<'a> {
    text: Vec<(char, &'a str)>,
    /// Where the last token ended.
    at: usize,
    /// Whether a key could begin here.
    key_allowed: bool,
    /// Where the last token was a plain text: where what continues it stands.
    behind_plain: Option<usize>,
    /// Open collections: the column of one in blocks, nothing for one in brackets.
    open: Vec<Option<usize>>,
}

const BREAKS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

impl<'a> Tabs<'a> {
    /// Nothing for a text without tabs.
    pub fn of(text: &'a str) -> Option<Self> {
        let without_mark = text.strip_prefix('\u{feff}').unwrap_or(text);
        text.contains('\t').then(|| Self {
            text: without_mark.char_indices().map(|(at, c)| (c, without_mark.get(at..).unwrap_or_default())).collect(),
            at: 0,
            key_allowed: true,
            behind_plain: None,
            open: Vec::new(),
        })
    }

    fn char(&self, at: usize) -> Option<char> {
        self.text.get(at).map(|(c, _)| *c)
    }

    /// How far it is from the line's begin.
    fn column(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.iter().rev().take_while(|(c, _)| !BREAKS.contains(c)).count()
    }

    /// The innermost block's column, and one more: where what continues a text has to stand.
    fn indent(&self) -> usize {
        self.open.iter().rev().flatten().next().map_or(0, |column| column + 1)
    }

    fn in_brackets(&self) -> bool {
        matches!(self.open.last(), Some(None))
    }

    fn error(&self, at: usize, message: &str) -> YamlError {
        let before = self.text.get(..at).unwrap_or_default();
        let breaks = before
            .iter()
            .enumerate()
            .filter(|(index, (c, _))| BREAKS.contains(c) && !(*c == '\r' && self.char(index + 1) == Some('\n')));
        let place = Place { line: breaks.count() + 1, column: self.column(at) + 1 };
        YamlError { message: format!("{message}; use spaces"), place }
    }

    /// The next event of the text.
    ///
    /// # Errors
    /// For a tab before it that may not be there.
    pub fn take(&mut self, event: &Event<'_>, span: Span) -> Result<(), YamlError> {
        let (start, end) = (span.start.index(), span.end.index());
        match event {
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => {
                // the parser names where its text begins
                let is_header = |at: &usize| {
                    matches!(self.char(*at), Some('|' | '>'))
                        && at
                            .checked_sub(1)
                            .is_none_or(|before| self.char(before).is_some_and(|c| is_blank(c) || BREAKS.contains(&c)))
                };
                let header = (self.at..=start).find(is_header).unwrap_or(start);
                self.between(header)?;
                self.block_text(header)
            }
            Event::Scalar(_, style, ..) if end > start => {
                self.between(start)?;
                let plain = matches!(style, ScalarStyle::Plain).then(|| self.indent());
                if let Some(indent) = plain {
                    self.continued(start, end, indent)?;
                }
                self.ended(end, plain);
                Ok(())
            }
            Event::Alias(_) => {
                self.between(start)?;
                self.ended(end, None);
                Ok(())
            }
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                if !matches!(style, StructureStyle::Flow) {
                    self.open.push(Some(span.start.col()));
                    return Ok(());
                }
                self.between(start)?;
                self.open.push(None);
                self.ended(start + 1, None);
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let was_in_brackets = matches!(self.open.pop(), Some(None));
                if was_in_brackets {
                    self.between(end)?;
                    self.ended(end, None);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The end of the text.
    ///
    /// # Errors
    /// For a tab before it that may not be there.
    pub fn finish(&mut self) -> Result<(), YamlError> {
        self.between(self.text.len())
    }

    fn ended(&mut self, at: usize, behind_plain: Option<usize>) {
        self.at = self.at.max(at);
        self.key_allowed = false;
        self.behind_plain = behind_plain;
    }

    /// What is between two tokens.
    fn between(&mut self, until: usize) -> Result<(), YamlError> {
        if let Some(indent) = self.behind_plain.take() {
            // blanks behind a plain text belong to it until something comes
            let mut end = self.at;
            while end < until && self.char(end).is_some_and(|c| is_blank(c) || BREAKS.contains(&c)) {
                end += 1;
            }
            self.continued(self.at, end, indent)?;
            let breaks = self.text.get(self.at..end).unwrap_or_default().iter().any(|(c, _)| BREAKS.contains(c));
            self.key_allowed = breaks;
            self.at = end;
        }
        if self.in_brackets() {
            self.at = self.at.max(until);
            return Ok(());
        }
        while self.at < until {
            let Some((c, rest)) = self.text.get(self.at).copied() else { break };
            let blank_behind = rest.chars().nth(1).is_none_or(|c| is_blank(c) || BREAKS.contains(&c));
            let column = self.column(self.at);
            match c {
                '\t' if self.key_allowed => {
                    return Err(self.error(self.at, "found a tab where a token may begin"));
                }
                ' ' | '\t' => {}
                c if BREAKS.contains(&c) => self.key_allowed = true,
                '#' => self.skip_line(),
                '%' if column == 0 => self.skip_line(),
                '-' | '.' if column == 0 && (rest.starts_with("---") || rest.starts_with("...")) => {
                    self.at += 2;
                    self.key_allowed = false;
                }
                '-' | '?' if blank_behind => self.key_allowed = true,
                // without a key before it, it follows on `?`
                ':' if blank_behind => {
                    let before = self.text.get(self.at - column..self.at).unwrap_or_default();
                    self.key_allowed = before.iter().all(|(c, _)| is_blank(*c));
                }
                _ => {
                    // an anchor or a tag
                    self.key_allowed = false;
                    while self.char(self.at + 1).is_some_and(|c| !is_blank(c) && !BREAKS.contains(&c)) {
                        self.at += 1;
                    }
                }
            }
            self.at += 1;
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        while self.char(self.at + 1).is_some_and(|c| !BREAKS.contains(&c)) {
            self.at += 1;
        }
    }

    /// A plain text over lines, or what is between it and the next token.
    fn continued(&self, start: usize, end: usize, indent: usize) -> Result<(), YamlError> {
        let mut leading = false;
        for at in start..end {
            match self.char(at) {
                Some(c) if BREAKS.contains(&c) => leading = true,
                Some('\t') if leading && self.column(at) < indent => {
                    return Err(self.error(at, "found a tab where a line is indented"));
                }
                Some(c) if is_blank(c) => {}
                _ => leading = false,
            }
        }
        Ok(())
    }

    /// The text of `|` or `>`, whose header begins here.
    fn block_text(&mut self, start: usize) -> Result<(), YamlError> {
        let mut at = start;
        let mut indent = None;
        while let Some(c) = self.char(at).filter(|c| !BREAKS.contains(c) && *c != '#') {
            if let Some(digit) = c.to_digit(10).and_then(|digit| usize::try_from(digit).ok()) {
                indent = Some(self.indent().saturating_sub(1) + digit);
            }
            at += 1;
        }
        while self.char(at).is_some_and(|c| !BREAKS.contains(&c)) {
            at += 1;
        }
        at = self.behind_break(at);
        let mut widest = 0;
        while at < self.text.len() {
            let mut column = 0;
            while self.char(at + column) == Some(' ') && indent.is_none_or(|indent| column < indent) {
                column += 1;
            }
            let next = self.char(at + column);
            if next == Some('\t') && indent.is_none_or(|indent| column < indent) {
                return Err(self.error(at + column, "found a tab where the text of a block is indented"));
            }
            widest = widest.max(column);
            let is_empty = next.is_none_or(|c| BREAKS.contains(&c));
            if !is_empty {
                let indent = *indent.get_or_insert(widest.max(self.indent()).max(1));
                if column < indent {
                    break;
                }
            }
            while self.char(at).is_some_and(|c| !BREAKS.contains(&c)) {
                at += 1;
            }
            at = self.behind_break(at);
        }
        self.ended(at, None);
        self.key_allowed = true;
        Ok(())
    }

    /// Where the next line begins.
    fn behind_break(&self, at: usize) -> usize {
        match (self.char(at), self.char(at + 1)) {
            (Some('\r'), Some('\n')) => at + 2,
            (Some(_), _) => at + 1,
            (None, _) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::yaml::documents;

    #[test]
    fn tabs_are_refused_where_pyyaml_refuses_them() {
        for (text, line, column) in [
            ("\trun: x\n", 1, 1),
            ("\t\nrun: x\n", 1, 1),
            ("\t# c\nrun: x\n", 1, 1),
            ("run: x\n\tsetup: y\n", 2, 1),
            ("run: x\n\t\n", 2, 1),
            ("run: x\n\t# c\nname: b\n", 2, 1),
            ("run: 'x'\n\t\nname: b\n", 2, 1),
            ("run: x\n\ty\n", 2, 1),
            ("run: |\n\techo hi\n", 2, 1),
            ("run: |\n  a\n\tb\n", 3, 1),
            ("run: |\n  \ta\n", 2, 3),
            ("run:\n\t- x\n", 2, 1),
            ("envs:\n  A:\n\t1\n", 3, 1),
            ("envs:\n  - \tA\n", 2, 5),
            ("- a\n-\tb\n", 2, 2),
            ("envs: {A: a\n\tb}\n", 2, 1),
            ("? a\n:\tb\n", 2, 2),
            ("?\ta\n: b\n", 1, 2),
            ("run: |\n  a\n\n\t\n", 4, 1),
            ("run: |\n  a\nb: c\n\t\n", 4, 1),
            ("a: b\n\t", 2, 1),
            ("a: [1]\n\t\n", 2, 1),
            ("a:\n  b: c\n \t\nd: e\n", 3, 2),
            ("a:\n  b: c\n  \t\nd: e\n", 3, 3),
        ] {
            let refused = documents(text).map(|all| all.len()).unwrap_err();
            assert_eq!((refused.place.line, refused.place.column), (line, column), "{text:?}: {refused}");
        }
        for text in [
            "name: a\t\nrun: x\n",
            "name:\ta\nrun: x\n",
            "run: x\n \t\nname: a\n",
            "run: x\n  \t y\n",
            "envs: {A: 1,\n\tB: 2}\n",
            "run: |\n  a\n  \tb\n",
            "--- \ta\n",
            "a: b\t# c\n",
            "a: &x\tb\n",
            "a: !!str\tb\n",
            "a: |2\n  \tb\n",
        ] {
            assert!(documents(text).is_ok(), "{text:?}: {:?}", documents(text).map(|all| all.len()));
        }
    }
}
