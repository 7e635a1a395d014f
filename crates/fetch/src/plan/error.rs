//! Why a folder could not be filled, and the exit code that says so.

/// What a pod's failure policy can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Other,
    /// A location, a pattern, a variable.
    Config,
    NotFound,
    /// No right to read, or no valid credentials.
    NoAccess,
    /// What arrives is not what the source says it holds, again and again.
    Damaged,
    NoRoom,
    /// Tried until patience ended.
    Network,
    /// SIGTERM or SIGINT; what was fetched is kept.
    Stopped,
}

/// A failed fetch. Its text holds no secret: addresses are shown without what follows `?`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    pub kind: Kind,
    pub text: String,
}

impl Error {
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub fn config(text: impl Into<String>) -> Self {
        Self::new(Kind::Config, text)
    }

    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Other => 1,
            Kind::Config => 2,
            Kind::NotFound => 3,
            Kind::NoAccess => 4,
            Kind::Damaged => 5,
            Kind::NoRoom => 6,
            Kind::Network => 7,
            Kind::Stopped => 143,
        }
    }
}

/// Schemes in whose locations `?` and `#` are part of a name, and begin nothing that may be secret.
const PLAIN: [&str; 10] = ["s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "hf", "file"];

/// Whether a text has a signature of a signed address in it.
pub fn has_signature(text: &str) -> bool {
    let fields = text.split(['?', '&', '#']).skip(1).filter_map(|field| field.split_once('='));
    let mut names = fields.map(|(name, _)| name.to_ascii_lowercase());
    names.any(|name| name == "sig" || name == "signature" || name.ends_with("-signature"))
}

/// An address as it may be shown: without user and password, of web servers without query and fragment (signatures, tokens). Of Azure's
/// own, what precedes the @ is the container.
pub fn shown(url: &str) -> String {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    let is_whole = PLAIN.contains(&scheme.as_str()) && !has_signature(url);
    let end = url.find(['?', '#']).filter(|_| !is_whole).unwrap_or(url.len());
    let url = &url[..end];
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let of_azure = ["abfs", "abfss"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    let names_container = of_azure && !authority.contains(':');
    let host = authority.rsplit_once('@').filter(|_| !names_container).map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// A text with each of `secrets` made unreadable: the last net under what servers and libraries say.
pub fn scrubbed(text: &str, secrets: &[String]) -> String {
    let secrets = secrets.iter().filter(|secret| secret.len() >= 4);
    secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[secret]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, safe) in [
            ("https://user:pass@host:8/a/b?sig=1#x", "https://host:8/a/b"),
            ("https://host?token=1", "https://host"),
            ("https://a@b@host/x@y", "https://host/x@y"),
            ("/local#frag", "/local"),
            ("s3://b/exp#2/?x", "s3://b/exp#2/?x"),
            ("S3://b/x?X-Amz-Signature=abc", "S3://b/x"),
            ("s3://key:secret@b/x?y", "s3://b/x?y"),
            ("hf://a/b@fix#2/x", "hf://a/b@fix#2/x"),
            ("ftp://h/x?token=1", "ftp://h/x"),
            ("abfss://c@acc.dfs.core.windows.net/x?sig=1", "abfss://c@acc.dfs.core.windows.net/x"),
            ("abfss://u:p@host/x", "abfss://host/x"),
        ] {
            assert_eq!(shown(url), safe);
        }
    }

    #[test]
    fn secrets_are_replaced() {
        assert_eq!(scrubbed("a hunter2 b", &["hunter2".to_owned(), "a".to_owned()]), "a [secret] b");
    }
}
