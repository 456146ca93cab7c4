//! The answers of EC2 and ELB: small XML documents, read into a tree. Namespaces count for nothing; document types are refused.

/// Deeper than any answer of the services that are used.
const DEPTH: usize = 24;

/// An element, its text and what is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// Reads a document. The error says what is wrong, never what was in it: answers can hold secrets.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let document = roxmltree::Document::parse(text).map_err(|_| "it is not XML")?;
        Self::read(document.root_element(), 0).ok_or("it is nested too deeply")
    }

    fn read(node: roxmltree::Node<'_, '_>, depth: usize) -> Option<Self> {
        if depth > DEPTH {
            return None;
        }
        let children: Option<Vec<Element>> = node
            .children()
            .filter(|child| child.is_element())
            .map(|child| Self::read(child, depth + 1))
            .collect();
        let text = node.text().unwrap_or_default().trim().to_owned();
        Some(Self { name: node.tag_name().name().to_owned(), text, children: children? })
    }

    /// The first element at a path of names: `placement/availabilityZone`.
    pub(crate) fn at(&self, path: &str) -> Option<&Element> {
        path.split('/').try_fold(self, |here, name| here.children.iter().find(|child| child.name == name))
    }

    /// The text at a path, unless it is missing or empty.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.at(path).map(|element| element.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The same, owned, and empty when there is none.
    pub(crate) fn string(&self, path: &str) -> String {
        self.text(path).unwrap_or_default().to_owned()
    }

    /// A number at a path.
    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Its own text.
    pub(crate) fn own_text(&self) -> &str {
        &self.text
    }

    /// The entries of a list at a path: EC2 names them `item`, ELB `member`.
    pub(crate) fn list(&self, path: &str) -> impl Iterator<Item = &Element> {
        let entries = self.at(path).map(|list| list.children.as_slice()).unwrap_or_default();
        entries.iter().filter(|entry| entry.name == "item" || entry.name == "member")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_paths_are_found() {
        let text = r#"<?xml version="1.0" encoding="UTF-8"?>
            <DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
              <requestId>r-1</requestId>
              <reservationSet><item><instancesSet>
                <item><instanceId>i-1</instanceId><placement><availabilityZone>a &amp; b</availabilityZone></placement></item>
                <item><instanceId>i-2</instanceId><ipAddress/></item>
              </instancesSet></item></reservationSet>
            </DescribeInstancesResponse>"#;
        let root = Element::parse(text).unwrap();
        assert_eq!(root.name, "DescribeInstancesResponse");
        let all: Vec<&Element> = root.list("reservationSet").flat_map(|r| r.list("instancesSet")).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].text("placement/availabilityZone"), Some("a & b"));
        assert_eq!((all[1].text("ipAddress"), all[1].text("nothing/there")), (None, None));
        assert_eq!(root.list("reservationSet/nothing").count(), 0);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert!(Element::parse("<html><body>proxy").is_err());
        let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]><x>&a;</x>"#;
        assert!(Element::parse(bomb).is_err());
        let deep = format!("{}{}", "<a>".repeat(40), "</a>".repeat(40));
        assert_eq!(Element::parse(&deep), Err("it is nested too deeply"));
    }
}
