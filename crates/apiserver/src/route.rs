//! Parses request paths: group, version, namespace, resource, name and subresource.

use crate::query::unescape;

/// A request's aim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/api`, `/apis`, `/api/v1`, `/apis/G`, `/apis/G/V`
    Discovery(Discovery),
    Resource(Path),
    /// Anything else, by its path without a trailing slash.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    Legacy,
    Groups,
    Group(String),
    Resources { group: String, version: String },
}

/// The path of a resource request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub group: String,
    pub version: String,
    /// Empty for cluster-scoped requests and lists over all namespaces.
    pub namespace: String,
    pub plural: String,
    pub name: String,
    pub subresource: String,
    /// Segments after the subresource (`proxy/a/b`).
    pub rest: Vec<String>,
    /// The old form `/api/v1/watch/...`.
    pub watch: bool,
}

/// Reads a path.
pub fn parse(path: &str) -> Route {
    let whole = path.replacen("/namespaces//", "/", 1);
    let path = whole.as_str();
    let segments: Vec<String> =
        path.split('/').filter(|s| !s.is_empty()).map(|s| unescape(s, false).unwrap_or_else(|| s.to_owned())).collect();
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api"] => return Route::Discovery(Discovery::Legacy),
        ["apis"] => return Route::Discovery(Discovery::Groups),
        ["api", version] => {
            return Route::Discovery(Discovery::Resources { group: String::new(), version: (*version).to_owned() });
        }
        ["apis", group] => return Route::Discovery(Discovery::Group((*group).to_owned())),
        ["apis", group, version] => {
            return Route::Discovery(Discovery::Resources {
                group: (*group).to_owned(),
                version: (*version).to_owned(),
            });
        }
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Route::Other(format!("/{}", words.join("/"))),
    };
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        // Parts of a namespace itself, not kinds inside it.
        ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let at = |i: usize| rest.get(i).map_or_else(String::new, |s| (*s).to_owned());
    Route::Resource(Path {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        plural: at(0),
        name: at(1),
        subresource: at(2),
        rest: rest.get(3..).unwrap_or_default().iter().map(|s| (*s).to_owned()).collect(),
        watch,
    })
}

/// The path of a subresource whose object has no name: `/api/v1/namespaces/a/pods//log`.
pub fn nameless(path: &str) -> Option<Path> {
    let named = path.trim_start_matches('/').split('/').collect::<Vec<_>>();
    let start = if named.first() == Some(&"api") { 2 } else { 3 };
    let inside = named.get(start) == Some(&"namespaces") && named.get(start + 1).is_some_and(|name| !name.is_empty());
    let start = if inside { start + 2 } else { start };
    let [plural, "", subresource] = named.get(start..)? else { return None };
    // what follows an empty namespace are the kinds in it
    if subresource.is_empty() || (*plural == "namespaces" && !matches!(*subresource, "status" | "finalize")) {
        return None;
    }
    let mut filled = named.clone();
    filled[start + 1] = "-";
    match parse(&format!("/{}", filled.join("/"))) {
        Route::Resource(path) => Some(Path { name: String::new(), ..path }),
        Route::Discovery(_) | Route::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths() {
        let path = |text: &str| match parse(text) {
            Route::Resource(p) => {
                format!("{}|{}|{}|{}|{}|{}", p.group, p.version, p.namespace, p.plural, p.name, p.subresource)
            }
            other => format!("{other:?}"),
        };
        for (text, parts) in [
            ("/api/v1/pods", "|v1||pods||"),
            ("/api/v1/namespaces", "|v1||namespaces||"),
            ("/api/v1/namespaces/a", "|v1||namespaces|a|"),
            ("/api/v1/namespaces/a/status", "|v1||namespaces|a|status"),
            ("/api/v1/namespaces/a/pods/b/log", "|v1|a|pods|b|log"),
            ("/apis/batch/v1/namespaces/a/jobs/", "batch|v1|a|jobs||"),
            ("/apis/batch/v1/watch/jobs", "batch|v1||jobs||"),
            ("/api/v1/namespaces//pods", "|v1||pods||"),
        ] {
            assert_eq!(path(text), parts, "{text}");
        }
        for (text, subresource) in [
            ("/api/v1/namespaces/a/pods//log", Some("log")),
            ("/apis/apps/v1/namespaces/a/deployments//scale", Some("scale")),
            ("/api/v1/nodes//status", Some("status")),
            ("/api/v1/namespaces//status", Some("status")),
            ("/api/v1/namespaces//pods", None),
            ("/api/v1/namespaces//pods/x", None),
            ("/api/v1/namespaces/a/pods/x//log", None),
        ] {
            assert_eq!(nameless(text).map(|path| path.subresource).as_deref(), subresource, "{text}");
        }
        assert_eq!(parse("/version/"), Route::Other("/version".to_owned()));
        assert_eq!(parse("/apis/batch"), Route::Discovery(Discovery::Group("batch".to_owned())));
    }
}
