//! Content negotiation: which encoding and which form of an object a client wants.

use resource::status::Status;

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// A watch's, whose frames are protobuf.
pub const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Yaml => YAML,
            Self::Protobuf => PROTOBUF,
        }
    }
}

/// What objects are turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Object,
    Table,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
}

/// The answer's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub encoding: Encoding,
    pub form: Form,
    /// `v1` or `v1beta1` of meta.k8s.io, where the form is not the object itself.
    pub form_version: &'static str,
    pub pretty: bool,
}

impl Accepted {
    /// Whether events of a watch are protobuf. Tables never are.
    pub fn streams_protobuf(&self) -> bool {
        self.encoding == Encoding::Protobuf && self.form != Form::Table
    }

    /// Of a watch: its events have frames in JSON and protobuf alone.
    ///
    /// # Errors
    /// 406, whatever else the client would take: upstream looks at what it takes first.
    pub fn streams(&self) -> Result<(), Status> {
        if self.encoding != Encoding::Yaml {
            return Ok(());
        }
        let kinds = format!("{JSON};stream=watch, {PROTOBUF};stream=watch");
        Err(Status::new(406, "NotAcceptable", format!("only the following media types are accepted: {kinds}")))
    }
}

impl Default for Accepted {
    fn default() -> Self {
        Self { encoding: Encoding::Json, form: Form::Object, form_version: "v1", pretty: false }
    }
}

/// One clause of an `Accept` header.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub media: String,
    pub parameters: Vec<(String, String)>,
    quality: f64,
}

impl Clause {
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
}

/// The clauses of an `Accept` header, best first.
pub fn clauses(header: &str) -> Vec<Clause> {
    let mut out: Vec<Clause> = header
        .split(',')
        .filter_map(|part| {
            let mut pieces = part.split(';').map(str::trim);
            let media = pieces.next().filter(|m| !m.is_empty())?.to_ascii_lowercase();
            let parameters: Vec<(String, String)> = pieces
                .filter_map(|p| p.split_once('='))
                .map(|(k, v)| (k.trim().to_owned(), v.trim().trim_matches('"').to_owned()))
                .collect();
            let quality = parameters.iter().find(|(k, _)| k == "q").and_then(|(_, v)| v.parse().ok()).unwrap_or(1.0);
            Some(Clause { media, parameters, quality })
        })
        .collect();
    let wildcards = |media: &str| media.matches('*').count();
    out.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(wildcards(&a.media).cmp(&wildcards(&b.media))));
    out
}

/// What a media type is answered with.
fn encoding(media: &str) -> Option<Encoding> {
    match media {
        "*/*" | "application/*" | JSON => Some(Encoding::Json),
        YAML => Some(Encoding::Yaml),
        PROTOBUF => Some(Encoding::Protobuf),
        _ => None,
    }
}

/// What an endpoint can answer with.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The object itself in protobuf. Its metadata can be had in it wherever `forms` are.
    pub protobuf: bool,
    /// Upstream has a router before it, which looks at types alone and does not take one with a wildcard in it.
    pub routed: bool,
    /// Metadata alone.
    pub forms: bool,
    /// Tables.
    pub tables: bool,
    /// Streams of changes; only named where nothing fits.
    pub watch: bool,
}

/// Chooses the answer's shape.
///
/// # Errors
/// 406: none of what the client accepts can be had.
pub fn accept(header: Option<&str>, offer: Offer) -> Result<Accepted, Status> {
    let Some(header) = header.filter(|h| !h.trim().is_empty()) else { return Ok(Accepted::default()) };
    let clauses = clauses(header);
    let routed = |clause: &Clause| clause.media != "application/*" && encoding(&clause.media).is_some();
    if offer.routed && !clauses.iter().any(routed) {
        let streams =
            if offer.watch { format!(", {JSON};stream=watch, {PROTOBUF};stream=watch") } else { String::new() };
        return Err(not_routed(&format!("{JSON}, {YAML}, {PROTOBUF}{streams}")));
    }
    for clause in &clauses {
        let Some(encoding) = encoding(&clause.media) else { continue };
        let form = match clause.parameter("as") {
            None | Some("") if encoding == Encoding::Protobuf && !offer.protobuf => continue,
            None | Some("") => Form::Object,
            // Tables are JSON and YAML only.
            Some("Table") if encoding == Encoding::Protobuf => continue,
            Some("Table") if offer.tables && clause.parameter("g") == Some("meta.k8s.io") => Form::Table,
            Some("PartialObjectMetadata") if offer.forms && clause.parameter("g") == Some("meta.k8s.io") => {
                Form::Metadata
            }
            Some("PartialObjectMetadataList") if offer.forms && clause.parameter("g") == Some("meta.k8s.io") => {
                Form::MetadataList
            }
            Some(_) => continue,
        };
        let form_version = match clause.parameter("v") {
            _ if form == Form::Object => "v1",
            Some("v1") => "v1",
            Some("v1beta1") => "v1beta1",
            _ => continue,
        };
        let pretty = clause.parameter("pretty") == Some("1");
        return Ok(Accepted { encoding, form, form_version, pretty });
    }
    Err(Status::new(
        406,
        "NotAcceptable",
        format!("only the following media types are accepted: {JSON}, {YAML}, {PROTOBUF}"),
    ))
}

/// Of what can be had in JSON alone, by a router.
///
/// # Errors
/// 406: none of what the client accepts can be had.
pub fn accept_json(header: Option<&str>) -> Result<(), Status> {
    let header = header.filter(|header| !header.trim().is_empty());
    let fits = |clause: &Clause| matches!(clause.media.as_str(), JSON | "*/*");
    match header.is_none_or(|header| clauses(header).iter().any(fits)) {
        true => Ok(()),
        false => Err(not_routed(JSON)),
    }
}

/// A router's refusal.
fn not_routed(available: &str) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    let mut status = Status::new(406, "NotAcceptable", message);
    status.details = Some(serde_json::json!({}));
    status
}

/// A content type without its parameters, in lower case.
pub fn media_type(header: &str) -> String {
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// 415 for a body in a format that the endpoint does not take.
pub fn unsupported(accepted: &[&str]) -> Status {
    Status::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offer = Offer { protobuf: true, routed: true, forms: true, tables: true, watch: false };

    #[test]
    fn chooses() {
        let encoding = |header| accept(Some(header), ALL).map(|a| (a.encoding, a.form)).ok();
        let json = Some((Encoding::Json, Form::Object));
        for (header, chosen) in [
            ("text/html", None),
            ("text/html,*/*", json),
            ("application/xml;q=0.9, application/json;q=0.1", json),
            ("application/vnd.kubernetes.protobuf,application/json", Some((Encoding::Protobuf, Form::Object))),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Encoding::Json, Form::Table))),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            ("application/json;as=Nothing", None),
            ("application/json;as=Nothing,application/json", json),
        ] {
            assert_eq!(encoding(header), chosen, "{header}");
        }
        let custom = Offer { protobuf: false, routed: false, forms: true, tables: true, watch: false };
        let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
        let encoding = |header: &str| accept(Some(header), custom).map(|a| (a.encoding, a.form)).ok();
        for (header, chosen) in [
            (PROTOBUF, None),
            (metadata.as_str(), Some((Encoding::Protobuf, Form::Metadata))),
            (&format!("{PROTOBUF},{metadata}"), Some((Encoding::Protobuf, Form::Metadata))),
            (&format!("{PROTOBUF},application/json"), json),
            ("application/*", json),
        ] {
            assert_eq!(encoding(header), chosen, "{header}");
        }
        // what is only answered has metadata, and no table
        let asked = Offer { tables: false, ..ALL };
        let form = |form: &str| format!("application/json;as={form};v=v1;g=meta.k8s.io");
        assert!(accept(Some(&form("Table")), asked).is_err());
        assert_eq!(accept(Some(&(form("Table") + ",application/json")), asked).map(|a| a.form), Ok(Form::Object));
        assert_eq!(accept(Some(&form("PartialObjectMetadata")), asked).map(|a| a.form), Ok(Form::Metadata));
        // upstream's router of built-in kinds does not take a type with a wildcard in it
        assert!(accept(Some("application/*"), ALL).is_err());
        let told = |header, routed| accept(Some(header), Offer { routed, ..ALL }).unwrap_err().message;
        let all = format!("{JSON}, {YAML}, {PROTOBUF}");
        assert_eq!(told("text/html", true), format!("406: Not Acceptable\n\nAvailable representations: {all}"));
        assert_eq!(told("text/html", false), format!("only the following media types are accepted: {all}"));
        assert!(accept_json(Some("application/yaml,*/*")).is_ok() && accept_json(None).is_ok());
        let refused = accept_json(Some("application/yaml")).unwrap_err().message;
        assert_eq!(refused, format!("406: Not Acceptable\n\nAvailable representations: {JSON}"));
    }
}
