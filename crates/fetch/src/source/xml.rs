//! As much XML as S3 and Azure speak: elements and text, and whether a text is percent-encoded.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    text: String,
    /// `Encoded="true"`
    pub is_encoded: bool,
    children: Vec<Node>,
}

impl Node {
    /// The child of that name.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|node| node.name == name)
    }

    /// The text of the child of that name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.child(name).map(|node| node.text.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Node> {
        self.children.iter().filter(move |node| node.name == name)
    }
}

/// The root element; `None`: it is not XML.
pub fn parse(text: &str) -> Option<Node> {
    const DEEPEST: usize = 16;
    let mut reader = Reader::from_str(text);
    let mut open = vec![Node::default()];
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                if open.len() > DEEPEST {
                    return None;
                }
                let name = start.local_name().as_ref().to_owned();
                let encoded = start.attributes().flatten().find(|attribute| attribute.key.as_ref() == "Encoded");
                let is_encoded = encoded.is_some_and(|attribute| attribute.value.as_ref() == "true");
                open.push(Node { name, is_encoded, ..Node::default() });
            }
            Event::Empty(empty) => {
                let name = empty.local_name().as_ref().to_owned();
                open.last_mut()?.children.push(Node { name, ..Node::default() });
            }
            Event::End(_) => {
                let node = open.pop()?;
                open.last_mut()?.children.push(node);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text),
            Event::CData(text) => open.last_mut()?.text.push_str(&text),
            Event::GeneralRef(entity) => {
                let text = &mut open.last_mut()?.text;
                match entity.resolve_char_ref().ok()? {
                    Some(c) => text.push(c),
                    None => text.push_str(resolve_predefined_entity(&entity)?),
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let root = open.pop().filter(|_| open.is_empty())?;
    root.children.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read() {
        let text = "<?xml version=\"1.0\"?><L xmlns=\"x\"><C><K>a &amp; b&#x21;</K><S/></C><C><K><![CDATA[<]]></K></C><T>t</T></L>";
        let root = parse(text).unwrap();
        assert_eq!(root.all("C").filter_map(|c| c.text("K")).collect::<Vec<_>>(), ["a & b!", "<"]);
        assert_eq!(root.text("T"), Some("t"));
        let encoded = parse("<B><Name Encoded=\"true\">a%2Fb</Name></B>").unwrap();
        assert!(encoded.child("Name").unwrap().is_encoded && encoded.text("Name") == Some("a%2Fb"));
        for wrong in ["", "no", "<a>", "{}", "<a></b>"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
