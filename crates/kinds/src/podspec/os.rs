//! What depends on the operating system of a pod's nodes: its name, the options of Windows, and the kernel's parameters of Linux.

use crate::kit::{at, is_true, items, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

const FOR_WINDOWS: &str = "cannot be set for a windows pod";
/// In the order in which upstream looks at them.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The name of the system, and what it rules out.
pub(super) fn system(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if at(spec, "os").is_null() {
        return;
    }
    match text(spec, "os.name") {
        "" => errors.push(Error::required(&path.child("os").child("name"), "")),
        "linux" => no_windows_options(spec, path, errors),
        "windows" => no_linux_options(spec, path, errors),
        other => errors.push(Error::not_supported(&path.child("os"), other, &["linux", "windows"])),
    }
}

/// The security contexts of all containers, with their places.
fn contexts<'a>(spec: &'a Value, path: &Path) -> Vec<(Path, &'a Value)> {
    let all = CONTAINER_LISTS.iter().flat_map(|list| items(spec, list).iter().enumerate().map(move |at| (*list, at)));
    let context = |(list, (i, container)): (&str, (usize, &'a Value))| {
        (path.child(list).index(i).child("securityContext"), at(container, "securityContext"))
    };
    all.map(context).collect()
}

fn no_windows_options(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let of_pod = (path.child("securityContext"), at(spec, "securityContext"));
    for (path, context) in std::iter::once(of_pod).chain(contexts(spec, path)) {
        if !at(context, "windowsOptions").is_null() {
            let detail = "windows options cannot be set for a linux pod";
            errors.push(Error::forbidden(&path.child("windowsOptions"), detail));
        }
    }
}

fn no_linux_options(spec: &Value, path: &Path, errors: &mut ErrorList) {
    const OF_CONTAINERS: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    const OF_PODS: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    let mut forbid = |path: Path| errors.push(Error::forbidden(&path, FOR_WINDOWS));
    for field in OF_PODS {
        let value = at(spec, "securityContext").get(field).unwrap_or(&Value::Null);
        let is_set = !value.is_null() && (field != "sysctls" || !items(spec, "securityContext.sysctls").is_empty());
        if is_set {
            forbid(path.child("securityContext").child(field));
        }
    }
    for field in ["hostUsers", "shareProcessNamespace"].into_iter().filter(|field| !at(spec, field).is_null()) {
        forbid(path.child(field));
    }
    for field in ["hostPID", "hostIPC"].into_iter().filter(|field| is_true(spec, field)) {
        forbid(path.child(field));
    }
    for (path, context) in contexts(spec, path) {
        for field in OF_CONTAINERS.into_iter().filter(|field| !at(context, field).is_null()) {
            forbid(path.child(field));
        }
    }
}

/// Containers that run on a Windows machine itself: all of a pod or none, and with its network.
pub(super) fn host_process(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let of_pod = at(spec, "securityContext.windowsOptions.hostProcess").as_bool();
    let contexts = contexts(spec, path);
    let mut on_host = 0;
    for (path, context) in &contexts {
        let own = at(context, "windowsOptions.hostProcess").as_bool();
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            errors.push(Error::invalid(&path.child("windowsOptions").child("hostProcess"), own, detail));
        }
        on_host += usize::from(own.or(of_pod).unwrap_or_default());
    }
    if on_host == 0 {
        return;
    }
    if on_host != contexts.len() {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(Error::invalid(path, "", detail));
    }
    if !is_true(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(Error::invalid(&path.child("hostNetwork"), false, detail));
    }
}

/// The options for Windows of a security context, a pod's or a container's.
pub(super) fn windows_options(context: &Value, path: &Path, errors: &mut ErrorList) {
    const SPEC_KIB_MAX: usize = 64;
    let options = at(context, "windowsOptions");
    let path = path.child("windowsOptions");
    if let Some(name) = at(options, "gmsaCredentialSpecName").as_str() {
        for fault in names::subdomain_faults(name, false) {
            errors.push(Error::invalid(&path.child("gmsaCredentialSpecName"), name, fault));
        }
    }
    if let Some(spec) = at(options, "gmsaCredentialSpec").as_str() {
        let fault = match spec.len() {
            0 => Some("gmsaCredentialSpec cannot be an empty string".to_owned()),
            long if long > SPEC_KIB_MAX * 1024 => {
                Some(format!("gmsaCredentialSpec size must be under {SPEC_KIB_MAX} KiB"))
            }
            _ => None,
        };
        errors.extend(fault.map(|fault| Error::invalid(&path.child("gmsaCredentialSpec"), spec, fault)));
    }
    if let Some(name) = at(options, "runAsUserName").as_str() {
        let faults = user_name_faults(name).into_iter();
        errors.extend(faults.map(|fault| Error::invalid(&path.child("runAsUserName"), name, fault)));
    }
}

/// What is wrong with the name of a Windows user, `USER` or `DOMAIN\USER`.
fn user_name_faults(name: &str) -> Vec<String> {
    const DOMAIN_MAX: usize = 256;
    const USER_MAX: usize = 104;
    let fault = |what: &str| format!("runAsUserName{what}");
    if name.is_empty() {
        return vec![fault(" cannot be an empty string")];
    }
    if name.contains(|c: char| c.is_ascii_control()) {
        return vec![fault(" cannot contain control characters")];
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>()[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec![fault(" cannot contain more than one backslash")],
    };
    let mut faults = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX) {
        faults.push(fault(&format!("'s Domain length must be under {DOMAIN_MAX} characters")));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_domain(domain)) {
        faults.push(fault("'s Domain doesn't match the NetBios nor the DNS format"));
    }
    if user.is_empty() {
        faults.push(fault("'s User cannot be empty"));
    } else if user.len() > USER_MAX {
        faults.push(fault(&format!("'s User length must not be longer than {USER_MAX} characters")));
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        faults.push(fault("'s User cannot contain only periods or spaces"));
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        faults.push(fault("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"));
    }
    faults
}

fn is_net_bios(domain: &str) -> bool {
    let length = domain.chars().count();
    (1..=15).contains(&length) && !domain.starts_with('.') && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_domain(domain: &str) -> bool {
    let fits = |label: &str| {
        let ends = |c: char| c.is_ascii_alphanumeric();
        label.len() <= 63
            && label.starts_with(ends)
            && label.ends_with(ends)
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    domain.split('.').all(fits)
}

/// The kernel's parameters that a pod sets.
pub(super) fn sysctls(spec: &Value, path: &Path, errors: &mut ErrorList) {
    const LENGTH_MAX: usize = 253;
    const NAMES: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(NAMES).expect("invariant: a constant pattern"));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (i, sysctl) in items(spec, "securityContext.sysctls").iter().enumerate() {
        let name = text(sysctl, "name");
        let at = path.child("sysctls").index(i).child("name");
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if name.len() > LENGTH_MAX || !NAME.is_match(name) {
            let detail = format!("must have at most {LENGTH_MAX} characters and match regex {NAMES}");
            errors.push(Error::invalid(&at, name, detail));
        } else if seen.contains(&name) {
            errors.push(Error::duplicate(&at, name));
        }
        errors.extend(of_the_host(name, spec).map(|detail| Error::invalid(&at, name, detail)));
        seen.insert(name);
    }
}

/// Why a parameter cannot be set in a pod that shares with its machine what the parameter is about.
fn of_the_host(name: &str, spec: &Value) -> Option<&'static str> {
    const IPC: [&str; 9] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
    ];
    let name = with_dots(name);
    if name.starts_with("net.") {
        return is_true(spec, "hostNetwork").then_some("may not be specified when 'hostNetwork' is true");
    }
    let is_ipc = name == "kernel.msg" || name.starts_with("fs.mqueue.") || IPC.contains(&name.as_str());
    (is_ipc && is_true(spec, "hostIPC")).then_some("may not be specified when 'hostIPC' is true")
}

/// A parameter's name with its parts divided by dots: `a/b.c` is `a.b/c`.
fn with_dots(name: &str) -> String {
    if name.find(['.', '/']).is_none_or(|first| name[first..].starts_with('.')) {
        return name.to_owned();
    }
    let swapped = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swapped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(spec: &Value) -> Vec<String> {
        let (mut errors, path) = (ErrorList::new(), Path::new("spec"));
        system(spec, &path, &mut errors);
        host_process(spec, &path, &mut errors);
        sysctls(spec, &path.child("securityContext"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_system_lacks_is_refused() {
        let context = json!({"windowsOptions": {}, "runAsUser": 1, "sysctls": []});
        let spec = |os: &str| json!({"os": {"name": os}, "hostPID": true, "securityContext": context, "containers": [{"securityContext": context}]});
        let options = "windowsOptions: Forbidden: windows options cannot be set for a linux pod";
        assert_eq!(
            faults(&spec("linux")),
            [format!("spec.securityContext.{options}"), format!("spec.containers[0].securityContext.{options}")]
        );
        let places = ["securityContext.runAsUser", "hostPID", "containers[0].securityContext.runAsUser"];
        assert_eq!(faults(&spec("windows")), places.map(|place| format!("spec.{place}: Forbidden: {FOR_WINDOWS}")));
        assert_eq!(faults(&spec("")), ["spec.os.name: Required value"]);
    }

    #[test]
    fn all_containers_run_on_the_machine_or_none() {
        let context = |on: bool| json!({"securityContext": {"windowsOptions": {"hostProcess": on}}});
        let mut spec = json!({"containers": [context(true), {}], "hostNetwork": true});
        assert_eq!(faults(&spec).len(), 1);
        spec["securityContext"] = context(true)["securityContext"].clone();
        assert_eq!(faults(&spec), Vec::<String>::new());
        spec["containers"] = json!([context(false)]);
        assert!(faults(&spec)[0].ends_with(
            "Invalid value: false: pod hostProcess value must be identical if both are specified, was true"
        ));
    }

    #[test]
    fn names_of_windows_users() {
        for (name, parts) in [
            ("user", vec![]),
            ("NT AUTHORITY\\user", vec![]),
            ("", vec!["an empty string"]),
            ("a\tb", vec!["control characters"]),
            ("a\\b\\c", vec!["more than one backslash"]),
            ("a.-\\.. ", vec!["only periods or spaces"]),
            ("\\a@b", vec!["NetBios nor the DNS", "the following characters"]),
            ("d\\", vec!["User cannot be empty"]),
        ] {
            let faults = user_name_faults(name);
            let fit = faults.iter().zip(&parts).all(|(fault, part)| fault.contains(part));
            assert!(fit && faults.len() == parts.len(), "{name}: {faults:?}");
        }
    }

    #[test]
    fn parameters_of_the_kernel() {
        let spec = |name: &str| json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": name}]}});
        assert_eq!(faults(&spec("kernel/shm_rmid_forced")), Vec::<String>::new());
        assert!(faults(&spec("A"))[0].contains("must have at most 253 characters and match regex ^("));
        assert!(faults(&spec("net/ipv4/tcp.x"))[0].ends_with("may not be specified when 'hostNetwork' is true"));
    }
}
