//! As much XML as S3 and Azure speak: elements and text, and whether a text is percent-encoded.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use std::borrow::Cow;

/// The elements of a text, which lends them their names and texts: listings are long, and most of each is looked at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// In the order in which they begin, so that those below an element follow it; at least one.
    elements: Vec<Element<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Element<'a> {
    name: &'a str,
    text: Cow<'a, str>,
    is_encoded: bool,
    /// Itself and those below it.
    count: usize,
}

/// An element and those below it.
#[derive(Clone, Copy)]
pub struct Node<'d> {
    this: &'d Element<'d>,
    below: &'d [Element<'d>],
}

impl Document<'_> {
    pub fn root(&self) -> Node<'_> {
        let (this, below) = self.elements.split_first().expect("a document has a root element");
        Node { this, below }
    }
}

impl<'d> Node<'d> {
    pub fn name(self) -> &'d str {
        self.this.name
    }

    fn children(self) -> impl Iterator<Item = Node<'d>> {
        let mut rest = self.below;
        std::iter::from_fn(move || {
            let (one, others) = rest.split_at_checked(rest.first()?.count)?;
            rest = others;
            let (this, below) = one.split_first()?;
            Some(Node { this, below })
        })
    }

    /// The child of that name.
    pub fn child(self, name: &str) -> Option<Node<'d>> {
        self.children().find(|node| node.this.name == name)
    }

    /// The text of the child of that name.
    pub fn text(self, name: &str) -> Option<&'d str> {
        self.child(name).map(|node| &*node.this.text)
    }

    /// `Encoded="true"`
    pub fn is_encoded(self) -> bool {
        self.this.is_encoded
    }

    pub fn all(self, name: &str) -> impl Iterator<Item = Node<'d>> {
        self.children().filter(move |node| node.this.name == name)
    }
}

/// `None`: it is not XML.
pub fn parse(text: &str) -> Option<Document<'_>> {
    const DEEPEST: usize = 16;
    // 5,000 blobs with what is told of each have a fifth
    const MOST: usize = 1 << 20;
    // as many as a page of a listing has
    const USUAL: usize = 8 << 10;
    const SHORTEST: usize = 32;
    let mut reader = Reader::from_str(text);
    let mut elements: Vec<Element<'_>> = Vec::with_capacity(USUAL.min(text.len() / SHORTEST));
    // where those that have not ended are
    let mut open: Vec<usize> = Vec::new();
    loop {
        let event = reader.read_event().ok()?;
        if elements.len() > MOST {
            return None;
        }
        let end = usize::try_from(reader.buffer_position()).ok()?;
        let current = || open.last().copied();
        match event {
            Event::Start(start) => {
                if open.len() >= DEEPEST {
                    return None;
                }
                let name = name(text, end.checked_sub(">".len())?, &start)?;
                let encoded = start.attributes().flatten().find(|attribute| attribute.key.as_ref() == "Encoded");
                let is_encoded = encoded.is_some_and(|attribute| attribute.value.as_ref() == "true");
                open.push(elements.len());
                elements.push(Element { name, text: Cow::default(), is_encoded, count: 1 });
            }
            Event::Empty(empty) => {
                let name = name(text, end.checked_sub("/>".len())?, &empty)?;
                elements.push(Element { name, text: Cow::default(), is_encoded: false, count: 1 });
                if open.is_empty() {
                    break;
                }
            }
            Event::End(_) => {
                let at = open.pop()?;
                let count = elements.len().checked_sub(at)?;
                elements.get_mut(at)?.count = count;
                if open.is_empty() {
                    // what follows the root element is of no interest
                    break;
                }
            }
            Event::Text(more) => add(&mut elements, current(), more.into_inner()),
            Event::CData(more) => add(&mut elements, current(), more.into_inner()),
            Event::GeneralRef(entity) => {
                let mut buffer = [0; 4];
                let more: &str = match entity.resolve_char_ref().ok()? {
                    Some(c) => c.encode_utf8(&mut buffer),
                    None => resolve_predefined_entity(&entity)?,
                };
                add(&mut elements, current(), Cow::Owned(more.to_owned()));
            }
            Event::Eof => return None,
            _ => {}
        }
    }
    Some(Document { elements })
}

/// The name of an element without its prefix, as `text` has it. `end`: of what stands between the element's brackets.
fn name<'a>(text: &'a str, end: usize, start: &BytesStart<'_>) -> Option<&'a str> {
    let begin = end.checked_sub(start.len())?;
    let whole = text.get(begin..begin.checked_add(start.name().as_ref().len())?)?;
    Some(whole.rsplit(':').next().unwrap_or(whole))
}

/// More text of an element; of none, it is what stands around the root.
fn add<'a>(elements: &mut [Element<'a>], to: Option<usize>, more: Cow<'a, str>) {
    let Some(element) = to.and_then(|at| elements.get_mut(at)) else { return };
    if element.text.is_empty() { element.text = more } else { element.text.to_mut().push_str(&more) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_listing_is_read() {
        let text = "<?xml version=\"1.0\"?><L xmlns=\"x\"><C><K>a &amp; b&#x21;</K><S/></C> <C><p:K a=\"K\"><![CDATA[<]]></p:K></C><T>t</T></L>\n";
        let document = parse(text).unwrap();
        let root = document.root();
        assert_eq!(root.name(), "L");
        assert_eq!(root.all("C").filter_map(|c| c.text("K")).collect::<Vec<_>>(), ["a & b!", "<"]);
        assert_eq!((root.text("T"), root.text("K"), root.child("C").unwrap().text("S")), (Some("t"), None, Some("")));
        let encoded = parse("<B><Name Encoded=\"true\">a%2Fb</Name></B>").unwrap();
        let name = encoded.root().child("Name").unwrap();
        assert!(name.is_encoded() && encoded.root().text("Name") == Some("a%2Fb"));
        assert_eq!(parse("<a/>").unwrap().root().name(), "a");
        for wrong in ["", "no", "<a>", "{}", "<a></b>", "<a><b></a>", "<a>&unknown;</a>", &"<a>".repeat(99)] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    /// An element with what is in it: its text, or others.
    #[derive(Clone, Debug)]
    enum Tree {
        Text(String),
        Below(Vec<(String, Tree)>),
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let text = "[ -~\u{e9}\u{1f600}]{0,9}".prop_map(Tree::Text);
        text.prop_recursive(5, 40, 6, |inner| prop::collection::vec(("[a-c]{1,2}", inner), 0..6).prop_map(Tree::Below))
    }

    fn written(name: &str, tree: &Tree) -> String {
        let inner = match tree {
            Tree::Text(text) => text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
            Tree::Below(all) => all.iter().map(|(name, tree)| written(name, tree)).collect(),
        };
        if inner.is_empty() { format!("<{name} x=\"1\" />") } else { format!("<p:{name}>{inner}</p:{name}>") }
    }

    fn is_same(node: Node<'_>, name: &str, tree: &Tree) -> bool {
        let below = match tree {
            Tree::Text(text) => {
                return node.name() == name && node.this.text == *text && node.children().next().is_none();
            }
            Tree::Below(below) => below,
        };
        let all: Vec<Node<'_>> = node.children().collect();
        node.name() == name
            && all.len() == below.len()
            && all.iter().zip(below).all(|(node, (name, tree))| is_same(*node, name, tree))
            && below.iter().all(|(name, _)| node.child(name).is_some())
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(tree in tree()) {
            let text = written("root", &tree);
            let document = parse(&text);
            prop_assert!(document.is_some_and(|document| is_same(document.root(), "root", &tree)), "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(<|>|/|&|;|a|p:|\\]\\]|!\\[CDATA\\[| |\"|=|\u{e9}){0,30}") {
            if let Some(document) = parse(&text) {
                prop_assert!(text.contains(document.root().name()));
            }
        }
    }
}
