//! What a client wants back, and what it sent: media types.

use crate::status::Status;

/// The form in which objects are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Rows and columns, as `kubectl get` wants them.
    Table,
    /// Metadata alone.
    Metadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

/// What was agreed on for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) form: Form,
    pub(crate) encoding: Encoding,
    /// The version of Table or PartialObjectMetadata that was asked for.
    pub(crate) v1beta1: bool,
}

/// What a client asks for a discovery document in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscoveryForm {
    Plain,
    AggregatedV2,
    AggregatedV2Beta1,
}

struct Range<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

const ACCEPTED: &str = "only the following media types are accepted: application/json, application/yaml";

fn ranges(accept: &str) -> impl Iterator<Item = Range<'_>> {
    accept.split(',').map(|part| {
        let mut pieces = part.split(';').map(str::trim);
        let media = pieces.next().unwrap_or_default();
        Range { media, params: pieces.filter_map(|p| p.split_once('=')).collect() }
    })
}

impl<'a> Range<'a> {
    fn param(&self, key: &str) -> &'a str {
        self.params.iter().find(|(k, _)| *k == key).map_or("", |(_, v)| *v)
    }

    fn encoding(&self) -> Option<Encoding> {
        match self.media {
            "" | "*/*" | "application/*" | "application/json" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    }
}

/// Chooses the first form of the client's list that is spoken here.
pub(crate) fn negotiate(accept: Option<&str>) -> Result<Accepted, Status> {
    let plain = Accepted { form: Form::Plain, encoding: Encoding::Json, v1beta1: false };
    let Some(accept) = accept.filter(|a| !a.trim().is_empty()) else { return Ok(plain) };
    for range in ranges(accept) {
        let Some(encoding) = range.encoding() else { continue };
        let form = match range.param("as") {
            "" => Form::Plain,
            "Table" => Form::Table,
            "PartialObjectMetadata" | "PartialObjectMetadataList" => Form::Metadata,
            _ => continue,
        };
        if form != Form::Plain
            && (range.param("g") != "meta.k8s.io" || !matches!(range.param("v"), "v1" | "v1beta1"))
        {
            continue;
        }
        return Ok(Accepted { form, encoding, v1beta1: range.param("v") == "v1beta1" });
    }
    Err(Status::new(406, "NotAcceptable", ACCEPTED))
}

/// The same for `/api` and `/apis`.
pub(crate) fn negotiate_discovery(accept: Option<&str>) -> Result<DiscoveryForm, Status> {
    let Some(accept) = accept.filter(|a| !a.trim().is_empty()) else { return Ok(DiscoveryForm::Plain) };
    for range in ranges(accept) {
        if range.encoding() != Some(Encoding::Json) {
            continue;
        }
        match (range.param("as"), range.param("g"), range.param("v")) {
            ("", ..) => return Ok(DiscoveryForm::Plain),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => return Ok(DiscoveryForm::AggregatedV2),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => {
                return Ok(DiscoveryForm::AggregatedV2Beta1);
            }
            _ => {}
        }
    }
    Err(Status::new(406, "NotAcceptable", ACCEPTED))
}

/// The media type of a body, without its parameters.
pub(crate) fn content_type(header: Option<&str>) -> &str {
    header.map_or("", |h| h.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_spoken_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(Some(kubectl)).unwrap().form, Form::Table);
        let go = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(Some(go)).unwrap().encoding, Encoding::Json);
        assert_eq!(negotiate(Some("text/html")).unwrap_err().code, 406);
        assert_eq!(negotiate(None).unwrap().form, Form::Plain);
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(negotiate_discovery(Some(discovery)).unwrap(), DiscoveryForm::AggregatedV2);
    }
}
