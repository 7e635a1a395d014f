//! What the environment asks for: upstream's variables, those of the libraries that it uses, and a few of our own. An empty value
//! counts as none.

use super::error::Error;
use super::location::{self, Kind, Location};
use super::patterns::{self, Filter, Tally};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of models in a hub, what is wanted unless ALLOW_PATTERNS says otherwise.
const OF_A_MODEL: [&str; 5] = ["*.json", "*.safetensors", "*.model", "*.txt", "*.gguf"];

/// What the kubeflow SDK sends as IGNORE_PATTERNS of every model.
const OF_THE_SDK: [&str; 5] = ["*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth"];

/// Variables whose values may be shown nowhere.
const SECRET: [&str; 17] = [
    "ACCESS_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "SECRET_ACCESS_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "BEARER_TOKEN",
    "CLOUDSDK_AUTH_ACCESS_TOKEN",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "IDENTITY_HEADER",
    "KUBEFLOW_TRAINER_SERVER_TOKEN",
];

const STREAMS: usize = 256;
const PART: u64 = 16 << 20;
const LISTING: u64 = 512 << 20;
const STALL: Duration = Duration::from_secs(30);

/// The environment, without empty values.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    pub fn new(all: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(all.into_iter().filter(|(_, value)| !value.trim().is_empty()).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The first of several that is set.
    pub fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter()
    }
}

/// One location, and under which name it may be shown.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: String,
    pub location: Location,
}

/// All that decides what a run does.
pub struct Settings {
    pub kind: Kind,
    pub wanted: Vec<Wanted>,
    pub warnings: Vec<String>,
    allow: Option<Vec<String>>,
    ignore: Vec<String>,
    pub revision: Option<String>,
    pub streams: usize,
    pub part: u64,
    pub stall: Duration,
    /// A file that cannot be one of the target ends the run before anything is written.
    pub strict: bool,
    /// Bytes of memory that a listing may take.
    pub listing: usize,
    pub variables: Variables,
}

impl Settings {
    /// # Errors
    /// A location or variable that means nothing.
    pub fn read(kind: Kind, uris: &[String], variables: Variables) -> Result<Self, Error> {
        let given = variables.get("STORAGE_URI").unwrap_or_default();
        let uris = if uris.is_empty() { location::several(given) } else { uris.to_vec() };
        if uris.is_empty() {
            return Err(Error::config(
                "no location is given: set STORAGE_URI (or --uri), for example hf://OWNER/NAME or s3://BUCKET/PREFIX",
            ));
        }
        let mut wanted = Vec::new();
        let mut warnings = Vec::new();
        for uri in &uris {
            let parsed = location::parse(uri, kind)?;
            wanted.push(Wanted { name: parsed.name, location: parsed.location });
            warnings.extend(parsed.warnings);
        }
        let number = |name: &str, default: u64, least: u64| match variables.get(name) {
            None => Ok(default),
            Some(text) => amount(text).filter(|n| *n >= least).ok_or_else(|| {
                Error::config(format!(
                    "{name} is {text:?}, which is no number of at least {least} (as 16, 64K, 16M, 1G)"
                ))
            }),
        };
        let streams = number("CONCURRENCY", STREAMS as u64, 1)?.min(256);
        Ok(Self {
            kind,
            wanted,
            warnings,
            allow: variables.get("ALLOW_PATTERNS").map(patterns::split).filter(|list| !list.is_empty()),
            ignore: variables.get("IGNORE_PATTERNS").map(patterns::split).unwrap_or_default(),
            revision: variables.get("REVISION").map(|revision| revision.trim().to_owned()),
            streams: usize::try_from(streams).unwrap_or(STREAMS),
            part: number("PART_SIZE", PART, 4096)?,
            stall: Duration::from_secs(number("STALL_SECONDS", STALL.as_secs(), 1)?),
            listing: usize::try_from(number("LISTING_MAX", LISTING, 1 << 20)?).unwrap_or(usize::MAX),
            strict: switch("STRICT", variables.get("STRICT"))?,
            variables,
        })
    }

    pub fn hub_filter(&self) -> Filter {
        let of_a_model = || OF_A_MODEL.map(str::to_owned).to_vec();
        let allow = self.allow.clone().or_else(|| (self.kind == Kind::Model).then(of_a_model));
        Filter::new(allow.as_deref(), &self.ignore, true)
    }

    pub fn filter(&self) -> Filter {
        Filter::new(self.allow.as_deref(), &self.ignore, false)
    }

    /// What to say of patterns that match nothing. The kubeflow SDK always sends the same list for models, so that says nothing.
    pub fn idle_patterns(&self, tally: &Tally) -> Vec<String> {
        let say = |name: &str, list: Vec<&str>| {
            let matches = if list.len() == 1 { "matches" } else { "match" };
            (!list.is_empty()).then(|| format!("{name}: {} {matches} no file of the location", list.join(", ")))
        };
        let allow = tally.idle(self.allow.as_deref().unwrap_or_default());
        let mut ignore = tally.idle(&self.ignore);
        ignore.retain(|pattern| self.kind != Kind::Model || !OF_THE_SDK.contains(pattern));
        [say("ALLOW_PATTERNS", allow), say("IGNORE_PATTERNS", ignore)].into_iter().flatten().collect()
    }

    /// What, besides the location and its version, decides which files there are.
    pub fn fingerprint(&self) -> String {
        let list = |list: Option<&[String]>| list.map(|list| list.join(","));
        format!("{} allow={:?} ignore={:?}", self.kind.word(), list(self.allow.as_deref()), list(Some(&self.ignore)))
    }

    /// The texts that may be shown nowhere.
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets: Vec<String> =
            SECRET.iter().filter_map(|name| self.variables.get(name)).map(str::to_owned).collect();
        secrets.extend(secrets.clone().iter().map(|secret| secret.trim().to_owned()));
        for wanted in &self.wanted {
            if let Location::Web(file) = &wanted.location {
                secrets.extend(file.user.iter().map(|(_, password)| password.clone()));
                let values = file.url.split_once('?').map_or("", |(_, query)| query).split('&');
                secrets.extend(
                    values.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned())).filter(|v| v.len() >= 12),
                );
            }
        }
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        secrets
    }
}

fn switch(name: &str, value: Option<&str>) -> Result<bool, Error> {
    match value.map(|value| value.trim().to_ascii_lowercase()).as_deref() {
        Some("1" | "true" | "yes" | "on") => Ok(true),
        None | Some("0" | "false" | "no" | "off") => Ok(false),
        Some(other) => Err(Error::config(format!("{name} is {other:?}; set it to 1 or 0"))),
    }
}

/// `16`, `64K`, `16M`, `1G`; binary units.
fn amount(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches('B').trim_end_matches('i');
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::read(Kind::Model, &[], Variables::new(pairs))
    }

    #[test]
    fn models_of_a_hub_have_a_list() {
        let settings = read(&[("STORAGE_URI", "hf://a/b"), ("IGNORE_PATTERNS", "")]).ok().unwrap();
        assert!(settings.hub_filter().wants("x/config.json") && !settings.hub_filter().wants("x.bin"));
        assert!(settings.filter().wants("x.bin"));
        let settings = read(&[("STORAGE_URI", "hf://a/b"), ("ALLOW_PATTERNS", "*.bin")]).ok().unwrap();
        assert!(settings.hub_filter().wants("x.bin") && !settings.hub_filter().wants("config.json"));
    }

    #[test]
    fn wrong_variables_are_named() {
        for (name, value) in [
            ("CONCURRENCY", "many"),
            ("CONCURRENCY", "0"),
            ("PART_SIZE", "1K"),
            ("PART_SIZE", "99999999999999G"),
            ("STRICT", "maybe"),
        ] {
            let error = read(&[("STORAGE_URI", "hf://a/b"), (name, value)]).err().unwrap();
            assert!(error.exit_code() == 2 && error.text.contains(name) && error.text.contains(value), "{error}");
        }
        assert!(read(&[("STORAGE_URI", " ")]).err().unwrap().text.contains("STORAGE_URI"));
        assert_eq!(read(&[("STORAGE_URI", "hf://a/b"), ("PART_SIZE", "8MiB")]).ok().unwrap().part, 8 << 20);
    }

    #[test]
    fn patterns_that_match_nothing_are_said_unless_the_sdk_sent_them() {
        let said = |ignore: &str, allow: &str| {
            let pairs = [("STORAGE_URI", "hf://a/b"), ("IGNORE_PATTERNS", ignore), ("ALLOW_PATTERNS", allow)];
            let settings = read(&pairs).ok().unwrap();
            settings.idle_patterns(&settings.hub_filter().tally(["x.json", "y.safetensors"].into_iter()))
        };
        assert!(said("*.msgpack,*.h5,*.bin,*.pt,*.pth", "").is_empty());
        let both = [
            "ALLOW_PATTERNS: *.jsn, *.gguf match no file of the location",
            "IGNORE_PATTERNS: x matches no file of the location",
        ];
        assert_eq!(said("*.bin,x,*.json", "*.jsn,*.gguf,*.json"), both);
    }

    #[test]
    fn secrets_are_known() {
        let uri = "https://u:hunter22@h/x?X-Amz-Signature=abcdefabcdef&a=1";
        let secrets = read(&[("STORAGE_URI", uri), ("HF_TOKEN", "hf_1\n")]).ok().unwrap().secrets();
        for secret in ["hunter22", "abcdefabcdef", "hf_1"] {
            assert!(secrets.iter().any(|s| s == secret), "{secret}");
        }
    }
}
