//! Who asks, in whose name, and of which host.

use super::*;
use crate::authorize::{self, ResourceAsk};

/// The names by which pods know an API server. As they are: `kubernetes.default.example.com` is somebody else's.
const OWN_NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// How a request came in.
#[derive(Clone)]
pub(crate) enum Caller {
    /// From this process; already known.
    Local(User),
    /// Over a socket; with the client's verified certificate (DER).
    Socket { certificate: Option<Arc<[u8]>>, peer: Option<IpAddr> },
}

impl Server {
    /// Who asks, and whether the request is addressed to this server.
    pub(super) fn admit(&self, parts: &Parts, caller: Caller, record: &mut Option<Record>) -> Result<User, Status> {
        let user = match caller {
            Caller::Local(user) => user,
            Caller::Socket { certificate, .. } => {
                self.check_host(parts)?;
                self.authenticate(parts, certificate.as_deref())?
            }
        };
        if let Some(record) = record {
            record.user = Some(user.clone());
        }
        let asked_for = impersonated(parts)?;
        if let Some(record) = record {
            record.acts_as.clone_from(&asked_for);
        }
        self.may_impersonate(user, asked_for)
    }

    /// Browsers must not be led here by names that somebody else's DNS resolves to this machine.
    fn check_host(&self, parts: &Parts) -> Result<(), Status> {
        let known = |authority: &str| {
            let host = match authority.strip_prefix('[') {
                Some(rest) => rest.split(']').next().unwrap_or_default(),
                None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
            };
            host.parse::<std::net::IpAddr>().is_ok()
                || OWN_NAMES.iter().any(|own| host.eq_ignore_ascii_case(own))
                || self.hosts.iter().any(|h| h.eq_ignore_ascii_case(host))
        };
        // a name that cannot be read is none of ours
        let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
        let mut hosts: Vec<String> = parts.headers.get_all(header::HOST).iter().map(text).collect();
        if hosts.len() > 1 {
            return Err(Status::bad_request("too many Host headers"));
        }
        // an address in the request's first line, too: a program that reads only the other one would be led here
        hosts.extend(parts.uri.authority().map(|authority| authority.as_str().to_owned()));
        if let Some(host) = hosts.iter().find(|host| !known(host)) {
            return Err(Status::new(403, "Forbidden", format!("the host {host:?} is not this server's")));
        }
        if let Some(origin) = parts.headers.get(header::ORIGIN).map(text) {
            let authority = origin.split_once("://").map_or("", |(_, rest)| rest);
            if !known(authority) {
                return Err(Status::new(403, "Forbidden", format!("the origin {origin:?} is not allowed")));
            }
        }
        Ok(())
    }

    fn authenticate(&self, parts: &Parts, certificate: Option<&[u8]>) -> Result<User, Status> {
        if let Some(user) = certificate.and_then(auth::certificate_user) {
            return Ok(user);
        }
        match parts.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()) {
            Some(value) => {
                let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
                token.and_then(|(_, token)| self.core.authenticate(token.trim())).ok_or_else(auth::unauthorized)
            }
            // What anybody may see, to find out whether a server is alive.
            None if matches!(
                parts.uri.path().trim_end_matches('/'),
                "/healthz" | "/livez" | "/readyz" | "/version"
            ) =>
            {
                Ok(User::anonymous())
            }
            None => Err(auth::unauthorized()),
        }
    }

    /// Carries out `Impersonate-*` headers. `wanted`: whom they name.
    fn may_impersonate(&self, user: User, wanted: Option<User>) -> Result<User, Status> {
        let Some(mut wanted) = wanted else { return Ok(user) };
        let account = auth::account_of(&wanted.name);
        let may = |resource: &str, group: &str, namespace: &str, name: &str| {
            let verb = "impersonate";
            let ask = ResourceAsk { verb, group, resource, namespace, name, ..ResourceAsk::default() };
            authorize::may(&self.core, &user, &ask)
        };
        match account {
            Some((namespace, account)) => may("serviceaccounts", "", namespace, account)?,
            None => may("users", "", "", &wanted.name)?,
        }
        if !wanted.uid.is_empty() {
            may("uids", "authentication.k8s.io", "", &wanted.uid)?;
        }
        for group in &wanted.groups {
            may("groups", "", "", group)?;
        }
        for (key, values) in &wanted.extra {
            for value in values {
                may(&format!("userextras/{key}"), "authentication.k8s.io", "", value)?;
            }
        }
        if let Some((namespace, account)) = account
            && wanted.groups.is_empty()
        {
            wanted.groups = User::service_account(namespace, account).groups;
        }
        let has = |group: &str| wanted.groups.iter().any(|has| has == group);
        // nobody in particular is among the unauthenticated, whatever groups were asked for
        let of_all = match wanted.name.as_str() {
            "system:anonymous" => (!has("system:unauthenticated")).then_some("system:unauthenticated"),
            _ => (!has("system:authenticated") && !has("system:unauthenticated")).then_some("system:authenticated"),
        };
        wanted.groups.extend(of_all.map(str::to_owned));
        Ok(wanted)
    }
}

/// Whom the headers of a request ask to act as.
fn impersonated(parts: &Parts) -> Result<Option<User>, Status> {
    // What cannot be read must not be taken for what is not there: then the client would act with rights of its own.
    let read = |value: &HeaderValue| {
        let text = std::str::from_utf8(value.as_bytes()).map(str::to_owned);
        text.map_err(|_| Status::bad_request("the headers that say whom to impersonate are not UTF-8"))
    };
    let all = |name: &str| parts.headers.get_all(name).iter().map(read).collect::<Result<Vec<String>, Status>>();
    let name = all("impersonate-user")?.into_iter().next().unwrap_or_default();
    let groups = all("impersonate-group")?;
    let uid = all("impersonate-uid")?.into_iter().next().unwrap_or_default();
    let mut extra = std::collections::BTreeMap::<String, Vec<String>>::new();
    for (header, value) in &parts.headers {
        if let Some(key) = header.as_str().strip_prefix("impersonate-extra-") {
            let key = query::unescape(key, false).unwrap_or_else(|| key.to_owned());
            extra.entry(key.to_lowercase()).or_default().push(read(value)?);
        }
    }
    if !name.is_empty() {
        return Ok(Some(User { name, uid, groups, extra }));
    }
    if groups.is_empty() && extra.is_empty() && uid.is_empty() {
        return Ok(None);
    }
    let list = |all: &[String]| all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
    let groups = if groups.is_empty() { "[]string(nil)".to_owned() } else { format!("[]string{{{}}}", list(&groups)) };
    let pairs: Vec<String> = extra.iter().map(|(key, all)| format!("{key:?}:[]string{{{}}}", list(all))).collect();
    let extra = if pairs.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", pairs.join(", ")) };
    // upstream shows its Go struct
    let user =
        format!("&user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{groups}, Extra:map[string][]string{extra}}}");
    Err(Status::bad_request(format!("requested {user} without impersonating a user name")))
}
