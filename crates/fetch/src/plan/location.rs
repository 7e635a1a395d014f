//! Where data come from: `hf://`, `s3://`, `gs://`, `az://`, `abfs(s)://`, `http(s)://`, `file://`.

use super::error::{Error, has_signature, shown};
use super::verify::Check;
use percent_encoding::percent_decode_str;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What is being filled. The hub keeps models and data sets apart, and of models not every file is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Dataset,
    Model,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Dataset => "dataset",
            Kind::Model => "model",
        }
    }
}

/// A repository of a hub, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    pub id: String,
    pub revision: Option<String>,
    /// A folder or file in it; empty for all.
    pub path: String,
    /// A path that is not there is passed over with a warning: of data sets, everything behind the name always was.
    pub path_may_miss: bool,
}

/// All objects below a prefix, or one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    pub bucket: String,
    pub prefix: String,
}

/// Blobs of an Azure storage account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blobs {
    /// The account's host (`NAME.dfs.core.windows.net`) or its name, where the location tells it; else a variable does.
    pub account: Option<String>,
    pub container: String,
    pub prefix: String,
}

/// One file of a web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebFile {
    /// Without fragment, user and password.
    pub url: String,
    pub user: Option<(String, String)>,
    pub check: Option<Check>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Hub(Repository),
    S3(Objects),
    Google(Objects),
    Azure(Blobs),
    Web(WebFile),
    File(PathBuf),
}

/// A location with what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    pub location: Location,
    /// Under which it is shown and remembered.
    pub name: String,
    pub warnings: Vec<String>,
}

/// The parts of an address, split as Python's `urlsplit` does.
struct Split<'a> {
    scheme: String,
    host: &'a str,
    /// All that follows the host, as it is written: keys and names of files may have `?` and `#` in them.
    rest: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    fragment: Option<&'a str>,
}

fn split(uri: &str) -> Split<'_> {
    let is_scheme = |s: &str| {
        s.starts_with(|c: char| c.is_ascii_alphabetic())
            && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let (scheme, rest) = match uri.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        _ => (String::new(), uri),
    };
    let (host, rest) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (before, fragment) = rest.split_once('#').map_or((rest, None), |(before, f)| (before, Some(f)));
    let (path, query) = before.split_once('?').map_or((before, None), |(path, q)| (path, Some(q)));
    Split { scheme, host, rest, path, query, fragment }
}

/// Several locations in one text: separated by blanks or new lines. A blank inside a name does not separate: only what
/// begins with a scheme begins a location.
pub fn several(text: &str) -> Vec<String> {
    // as Python's urlsplit: blanks around and line ends inside are no part of an address
    let begins = |at: usize| {
        let rest = &text[at..];
        let word = rest.split(char::is_whitespace).next().unwrap_or_default();
        word.split_once("://").is_some_and(|(scheme, _)| {
            split(&format!("{scheme}:")).scheme == scheme.to_ascii_lowercase() && !scheme.is_empty()
        })
    };
    let mut starts: Vec<usize> = vec![0];
    let mut blank = false;
    for (at, c) in text.char_indices() {
        if blank && !c.is_whitespace() && begins(at) && !text[..at].trim().is_empty() {
            starts.push(at);
        }
        blank = c.is_whitespace();
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let parts = starts.iter().zip(ends).map(|(start, end)| text[*start..end].trim_matches(|c: char| c <= ' '));
    parts.map(|part| part.replace(['\n', '\r', '\t'], "")).filter(|part| !part.is_empty()).collect()
}

/// # Errors
/// The location cannot mean anything; the text names it.
pub fn parse(uri: &str, kind: Kind) -> Result<Parsed, Error> {
    let parts = split(uri);
    let mut warnings = Vec::new();
    let mut name = shown(uri);
    let location = match parts.scheme.as_str() {
        "hf" => {
            let path = path_at_the_hub(&parts, kind);
            if path.len() < parts.rest.len() {
                name = shown(uri.strip_suffix(&parts.rest[path.len()..]).unwrap_or(uri));
                warnings.push(format!(
                    "{name}: a repository's name has no ? or #, and what follows it is ignored; write a revision as \
                     {name}@REVISION, and set patterns as variables"
                ));
            }
            Location::Hub(repository(parts.host, path, kind).map_err(|why| Error::config(format!("{name}: {why}")))?)
        }
        "s3" | "s3a" => Location::S3(objects(&name, &parts)?),
        "gs" | "gcs" => Location::Google(objects(&name, &parts)?),
        "az" | "azure" | "abfs" | "abfss" => {
            let objects = objects(&name, &parts)?;
            let (container, account) = match parts.host.split_once('@') {
                Some((container, host)) => (container.to_owned(), Some(host.to_owned())),
                None => (objects.bucket, None),
            };
            if container.is_empty() || account.as_deref() == Some("") {
                return Err(Error::config(format!(
                    "{name}: a container and an account are named as {}://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
                    parts.scheme
                )));
            }
            Location::Azure(Blobs { account, container, prefix: objects.prefix })
        }
        "http" | "https" => {
            if parts.fragment.is_some_and(|fragment| !fragment.is_empty() && checksums(fragment).next().is_none()) {
                warnings.push(format!(
                    "{name}: what follows # is never sent to a web server, and names no checksum; write %23 if the name has a # in it"
                ));
            }
            Location::Web(web_file(uri, &parts)?)
        }
        "file" => {
            if !(parts.host.is_empty() || parts.host == "localhost") || !parts.rest.starts_with('/') {
                return Err(Error::config(format!("{name}: a file is named by its absolute path: file:///PATH")));
            }
            let path: Vec<u8> = percent_decode_str(parts.rest).collect();
            Location::File(PathBuf::from(OsString::from_vec(path)))
        }
        "cache" => {
            return Err(Error::config(format!(
                "{name}: the data cache is not part of this version; name the table's files themselves (s3://, hf://, file://)"
            )));
        }
        "oci" => {
            return Err(Error::config(format!("{name}: oci:// is not read yet; {READ} are")));
        }
        "" => {
            return Err(Error::config(format!(
                "{name}: this is no location, for it has no scheme; write file://{} for a path, hf://OWNER/NAME for a repository",
                if name.starts_with('/') { name.as_str() } else { "/PATH" }
            )));
        }
        other => {
            return Err(Error::config(format!("{name}: nothing here reads {other}://; {READ} are read")));
        }
    };
    Ok(Parsed { location, name, warnings })
}

/// What is read, for messages.
const READ: &str = "hf://, s3://, gs://, az://, abfss://, http(s):// and file://";

/// A bucket and a prefix, taken as they are written: nothing is decoded, and `?` and `#` are part of a key.
fn objects(name: &str, parts: &Split<'_>) -> Result<Objects, Error> {
    let scheme = &parts.scheme;
    if parts.host.is_empty() {
        return Err(Error::config(format!("{name}: no bucket is named; write {scheme}://BUCKET/PREFIX")));
    }
    if !parts.rest.is_empty() && !parts.rest.starts_with('/') {
        return Err(Error::config(format!(
            "{name}: a bucket's name has no ? or # in it; write {scheme}://BUCKET/PREFIX"
        )));
    }
    if parts.host.contains('@') && !scheme.starts_with("abfs") {
        return Err(Error::config(format!(
            "{name}: a bucket's name has no @ in it; set credentials as variables, not in the location"
        )));
    }
    if has_signature(parts.rest) {
        return Err(Error::config(format!(
            "{name}: the location has a signature in it, which would be taken as part of the key; set it as \
             AZURE_STORAGE_SAS_TOKEN, or write the signed address as https://…"
        )));
    }
    Ok(Objects { bucket: parts.host.to_owned(), prefix: parts.rest.trim_start_matches('/').to_owned() })
}

/// What of an hf:// location names something at the hub. `?` and `#` are part of a revision and of a path; a repository's name has
/// neither, so behind the name alone they begin what upstream drops.
fn path_at_the_hub<'a>(parts: &Split<'a>, kind: Kind) -> &'a str {
    let dropped = parts.rest.find(['?', '#']).unwrap_or(parts.rest.len());
    let name = &parts.rest[..dropped];
    let segments = name.matches('/').count();
    let in_a_path = match kind {
        Kind::Dataset if parts.host == "datasets" => segments > 2,
        Kind::Dataset => segments > 1,
        Kind::Model => false,
    };
    if parts.host.contains('@') || name.contains('@') || in_a_path { parts.rest } else { name }
}

/// The checksums of a fragment, as algorithm and digits.
fn checksums(fragment: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = fragment.split('&').filter_map(|part| part.split_once('='));
    parts.filter(|(algorithm, _)| ["md5", "sha1", "sha256", "sha512"].contains(algorithm))
}

/// The fragment may hold a checksum: `#sha256=…`, several joined by `&`.
fn web_file(uri: &str, parts: &Split<'_>) -> Result<WebFile, Error> {
    let name = shown(uri);
    let (user, host) = match parts.host.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, parts.host),
    };
    if host.is_empty() {
        return Err(Error::config(format!("{name}: no host is named")));
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = user.map(|user| {
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        (decoded(user), decoded(password))
    });
    let mut check = None;
    for (algorithm, hex) in checksums(parts.fragment.unwrap_or_default()) {
        let found = Check::from_hex(algorithm, hex);
        check = Some(found.ok_or_else(|| {
            Error::config(format!("{name}: #{algorithm}= is not followed by that checksum in hex digits"))
        })?);
    }
    let path = if parts.path.is_empty() { "/" } else { parts.path };
    let query = parts.query.map(|query| format!("?{query}")).unwrap_or_default();
    let url = format!("{}://{host}{}", parts.scheme, encoded(&format!("{path}{query}")));
    Ok(WebFile { url, user, check })
}

/// What may not stand in a request line, as percent signs; what is encoded stays.
fn encoded(path: &str) -> String {
    const UNSAFE: percent_encoding::AsciiSet = percent_encoding::CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'<')
        .add(b'>')
        .add(b'\\')
        .add(b'^')
        .add(b'`')
        .add(b'{')
        .add(b'|')
        .add(b'}');
    percent_encoding::utf8_percent_encode(path, &UNSAFE).to_string()
}

/// `OWNER/NAME[@REVISION][/PATH]`; of models also `NAME` alone.
fn repository(host: &str, path: &str, kind: Kind) -> Result<Repository, String> {
    let (host, path) = match (kind, host, path.split_once('/').map(|(_, rest)| rest)) {
        // as huggingface's own file system writes it
        (Kind::Dataset, "datasets", Some(rest)) if rest.trim_end_matches('/').contains('/') => {
            rest.find('/').map_or((rest, ""), |at| rest.split_at(at))
        }
        _ => (host, path),
    };
    let whole = format!("{host}{path}");
    if let Some((id, rest)) = whole.split_once('@').filter(|(id, _)| id.matches('/').count() <= 1) {
        let (revision, path) = revision(rest);
        if revision.is_empty() {
            return Err("no revision follows the @".to_owned());
        }
        valid_id(id)?;
        return Ok(Repository { id: id.to_owned(), revision: Some(revision), path, path_may_miss: false });
    }
    match kind {
        Kind::Model => {
            valid_id(&whole)?;
            Ok(Repository { id: whole, revision: None, path: String::new(), path_may_miss: false })
        }
        Kind::Dataset => {
            let mut segments = path.split('/').skip(1);
            let second = segments.next().ok_or("a data set is named as hf://OWNER/NAME")?;
            let id = format!("{host}/{second}");
            valid_id(&id)?;
            let rest = segments.collect::<Vec<_>>().join("/");
            let path = rest.trim_matches('/').to_owned();
            Ok(Repository { id, revision: None, path, path_may_miss: true })
        }
    }
}

/// The revision, in which slashes are written %2F (but in the hub's own refs/pr/N and refs/convert/NAME), and what follows it.
fn revision(text: &str) -> (String, String) {
    let segments: Vec<&str> = text.split('/').collect();
    let taken = match segments.as_slice() {
        ["refs", "pr" | "convert", _, ..] => 3,
        _ => 1,
    };
    let decoded = percent_decode_str(&segments[..taken].join("/")).decode_utf8_lossy().into_owned();
    (decoded, segments[taken..].join("/").trim_matches('/').to_owned())
}

/// The hub's rules for names.
fn valid_id(id: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{id:?} is no repository's name ({why}); write hf://OWNER/NAME"));
    let parts: Vec<&str> = id.split('/').collect();
    let edge = |c: char| c == '-' || c == '.';
    match parts.as_slice() {
        _ if parts.len() > 2 => {
            wrong("more than one slash; a folder may follow a revision: hf://OWNER/NAME@main/FOLDER")
        }
        _ if parts.iter().any(|part| part.is_empty()) => wrong("a part of it is empty"),
        _ if id.len() > 96 => wrong("longer than 96 characters"),
        _ if !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)) => {
            wrong("only letters, digits, '-', '_' and '.' are allowed")
        }
        _ if id.contains("--") || id.contains("..") => wrong("it has -- or .. in it"),
        _ if parts.iter().any(|part| part.starts_with(edge) || part.ends_with(edge)) => {
            wrong("a part of it begins or ends with '-' or '.'")
        }
        _ if id.ends_with(".git") => wrong("it ends with .git"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hub(uri: &str, kind: Kind) -> Result<Repository, String> {
        match parse(uri, kind).map_err(|e| e.text)?.location {
            Location::Hub(repository) => Ok(repository),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn repositories() {
        let data = |id: &str, revision: Option<&str>, path: &str, path_may_miss| {
            Ok(Repository {
                id: id.to_owned(),
                revision: revision.map(str::to_owned),
                path: path.to_owned(),
                path_may_miss,
            })
        };
        for (uri, expected) in [
            ("hf://acme/reviews", data("acme/reviews", None, "", true)),
            ("HF://acme/reviews/", data("acme/reviews", None, "", true)),
            ("hf://acme/reviews/data/x", data("acme/reviews", None, "data/x", true)),
            ("hf://acme/reviews@v1", data("acme/reviews", Some("v1"), "", false)),
            ("hf://acme/reviews@v1/data/", data("acme/reviews", Some("v1"), "data", false)),
            ("hf://acme/reviews@a%2Fb/c", data("acme/reviews", Some("a/b"), "c", false)),
            ("hf://acme/reviews@refs/pr/1/c", data("acme/reviews", Some("refs/pr/1"), "c", false)),
            ("hf://datasets/acme/reviews", data("acme/reviews", None, "", true)),
            ("hf://datasets/acme", data("datasets/acme", None, "", true)),
            ("hf://acme/reviews?revision=v1", data("acme/reviews", None, "", true)),
            ("hf://acme/reviews#x@v1/y", data("acme/reviews", None, "", true)),
            ("hf://datasets/acme/reviews#x", data("acme/reviews", None, "", true)),
            ("hf://acme/reviews/a#2/b?.txt", data("acme/reviews", None, "a#2/b?.txt", true)),
            ("hf://acme/reviews@fix#2", data("acme/reviews", Some("fix#2"), "", false)),
            ("hf://acme/reviews@v1/exp?lr=1", data("acme/reviews", Some("v1"), "exp?lr=1", false)),
        ] {
            assert_eq!(hub(uri, Kind::Dataset), expected, "{uri}");
        }
        for (uri, expected) in [
            ("hf://acme/tiny", data("acme/tiny", None, "", false)),
            ("hf://gpt2", data("gpt2", None, "", false)),
            ("hf://acme/tiny@main/original", data("acme/tiny", Some("main"), "original", false)),
            ("hf://acme/tiny?x", data("acme/tiny", None, "", false)),
            ("hf://gpt2@main/a#1?", data("gpt2", Some("main"), "a#1?", false)),
        ] {
            assert_eq!(hub(uri, Kind::Model), expected, "{uri}");
        }
        for (uri, warned) in
            [("hf://a/b#x", true), ("hf://a/b?", true), ("hf://a/b@c#d", false), ("hf://a/b/c#d", false)]
        {
            assert_eq!(!parse(uri, Kind::Dataset).unwrap().warnings.is_empty(), warned, "{uri}");
        }
    }

    #[test]
    fn wrong_locations_are_named() {
        for (uri, kind) in [
            ("hf://plain", Kind::Dataset),
            ("hf://plain/", Kind::Dataset),
            ("hf:/acme/reviews", Kind::Dataset),
            ("hf://acme/reviews@", Kind::Dataset),
            ("hf://acme/re..views", Kind::Dataset),
            ("hf://-acme/reviews", Kind::Dataset),
            ("hf://acme/tiny/", Kind::Model),
            ("hf://acme/tiny/original", Kind::Model),
            ("hf://acme/tiny.git", Kind::Model),
            ("s3:///x", Kind::Model),
            ("s3://b?x", Kind::Model),
            ("gs://b#2/x", Kind::Model),
            ("s3://key:secret@b/x", Kind::Model),
            ("az://c/x?sv=1&sig=abc", Kind::Model),
            ("s3://b/x?X-Amz-Signature=abc", Kind::Model),
            ("/mnt/data", Kind::Model),
            ("ftp://acme/x", Kind::Model),
            ("cache://a/b", Kind::Dataset),
            ("gs:///a", Kind::Dataset),
            ("oci://a/b", Kind::Dataset),
            ("file://host/x", Kind::Dataset),
            ("http:///x", Kind::Dataset),
            ("http://h/x#sha256=12", Kind::Dataset),
        ] {
            let error = parse(uri, kind).expect_err(uri);
            assert!(error.exit_code() == 2 && error.text.starts_with(&shown(uri)), "{uri}: {error}");
        }
    }

    #[test]
    fn prefixes_are_taken_as_written() {
        for (uri, bucket, prefix) in [
            ("s3://b", "b", ""),
            ("s3://b/", "b", ""),
            ("S3A://b//a/%25 +&", "b", "a/%25 +&"),
            ("s3://b/a?x#y", "b", "a?x#y"),
            ("s3://b/exp#2/", "b", "exp#2/"),
            ("s3://b/#", "b", "#"),
            ("s3://b/clip?.wav", "b", "clip?.wav"),
            ("s3://b/a@b/c", "b", "a@b/c"),
            ("s3://b/x?design=1&signal=2", "b", "x?design=1&signal=2"),
        ] {
            let expected = Location::S3(Objects { bucket: bucket.to_owned(), prefix: prefix.to_owned() });
            let parsed = parse(uri, Kind::Model).unwrap();
            assert_eq!((parsed.location, parsed.warnings.len()), (expected, 0), "{uri}");
            let name = parse(&uri.replacen("s3", "gs", 1).replacen("S3A", "gs", 1), Kind::Model).unwrap().location;
            assert_eq!(
                name,
                Location::Google(Objects { bucket: bucket.to_owned(), prefix: prefix.to_owned() }),
                "{uri}"
            );
        }
    }

    #[test]
    fn files_of_this_machine_have_any_name() {
        for (uri, path) in [
            ("file:///a/b", "/a/b"),
            ("file:///a#2/b?.txt", "/a#2/b?.txt"),
            ("file:///a%23b%20c", "/a#b c"),
            ("file://localhost/x#", "/x#"),
        ] {
            assert_eq!(parse(uri, Kind::Dataset).unwrap().location, Location::File(PathBuf::from(path)), "{uri}");
        }
        let Location::File(path) = parse("file:///%FF", Kind::Dataset).unwrap().location else { panic!() };
        assert_eq!(path.into_os_string().into_vec(), b"/\xff");
    }

    proptest! {
        /// Whatever a key is made of, its location names it and no other.
        #[test]
        fn a_key_is_named_by_its_location(key in "[a-z?#&=%@:+ ]([a-z?#&=%@:+ /]{0,12})", other in "[a-z?#]{1,4}") {
            for scheme in ["s3", "gs", "az"] {
                let uri = format!("{scheme}://bucket/{key}");
                let Ok(parsed) = parse(&uri, Kind::Dataset) else {
                    prop_assert!(has_signature(&key));
                    continue;
                };
                let (Location::S3(Objects { prefix, .. }) | Location::Google(Objects { prefix, .. })
                    | Location::Azure(Blobs { prefix, .. })) = parsed.location else { panic!() };
                prop_assert_eq!(&prefix, &key);
                // the name under which a location is remembered is no other's
                let another = format!("{scheme}://bucket/{other}");
                prop_assert!(key == other || shown(&uri) != shown(&another));
            }
        }
    }

    #[test]
    fn containers_of_azure() {
        for (uri, account, container, prefix) in [
            ("az://c/a/b", None, "c", "a/b"),
            ("abfss://c@acc.dfs.core.windows.net/a/", Some("acc.dfs.core.windows.net"), "c", "a/"),
            ("abfs://c@acc/a", Some("acc"), "c", "a"),
        ] {
            let expected = Blobs {
                account: account.map(str::to_owned),
                container: container.to_owned(),
                prefix: prefix.to_owned(),
            };
            assert_eq!(parse(uri, Kind::Model).unwrap().location, Location::Azure(expected), "{uri}");
        }
        for uri in ["az:///a", "abfss://@acc/a", "abfss://c@/a"] {
            assert_eq!(parse(uri, Kind::Model).unwrap_err().exit_code(), 2, "{uri}");
        }
        let google = Objects { bucket: "b".to_owned(), prefix: "a%20b".to_owned() };
        assert_eq!(parse("gs://b/a%20b", Kind::Model).unwrap().location, Location::Google(google));
    }

    #[test]
    fn secrets_of_an_address_are_not_part_of_its_name() {
        let Location::Web(file) =
            parse("https://us%40er:pw@h:1/a b?s=1#md5=d41d8cd98f00b204e9800998ecf8427e", Kind::Model).unwrap().location
        else {
            panic!()
        };
        assert_eq!(file.url, "https://h:1/a%20b?s=1");
        assert_eq!(file.user, Some(("us@er".to_owned(), "pw".to_owned())));
        assert!(file.check.is_some());
        assert!(!parse("ftp://user:pw@h/x?token=t", Kind::Model).unwrap_err().text.contains("pw"));
    }

    #[test]
    fn several_locations_stand_in_one_text() {
        assert_eq!(several(" hf://a/b\n s3://c/d e\tf https://g "), ["hf://a/b", "s3://c/d ef", "https://g"]);
        assert_eq!(several("s3://c/sp ace+plus"), ["s3://c/sp ace+plus"]);
        assert_eq!(several("/mnt/data"), ["/mnt/data"]);
        assert!(several(" \n").is_empty());
    }
}
