//! A pod's view of the file system: its own mount namespace, with volumes at the paths the pod names.
//!
//! Where a path does not exist on the host, nothing is made there if the place is the system's (`/`, `/etc`, `/home`):
//! the parent directory is replaced, for this pod only, by a tmpfs in which every existing entry is bound and the missing
//! ones are made. In the user's own directories an empty mount point is simply created.

use crate::poddir::PodDir;
use crate::wire::{Isolation, Launch, Mount};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getegid, geteuid, pivot_root, sethostname};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};

const NONE: Option<&str> = None;
const HOSTS: &str = "/etc/hosts";

/// What went wrong while the pod's view was made.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// `what` names the path.
    #[error("{what}: {error}")]
    Failed { what: String, error: io::Error },
    #[error("mount path {}: {} is not a directory", target.display(), ancestor.display())]
    NotADirectory { target: PathBuf, ancestor: PathBuf },
    #[error("mount path {} is not absolute", target.display())]
    NotAbsolute { target: PathBuf },
}

pub type MountResult<T> = Result<T, MountError>;

fn context<T, E: Into<io::Error>>(result: Result<T, E>, what: impl FnOnce() -> String) -> MountResult<T> {
    result.map_err(|error| MountError::Failed { what: what(), error: error.into() })
}

/// Leaves the host's namespaces. The caller must have one thread only.
pub fn enter_namespaces(isolation: &Isolation, hostname: &str) -> MountResult<()> {
    let Isolation::Hosts { user_namespace } = isolation else { return Ok(()) };
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    let (uid, gid) = (geteuid(), getegid());
    if *user_namespace {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    context(unshare(flags), || "new namespaces".into())?;
    if *user_namespace {
        context(fs::write("/proc/self/setgroups", "deny"), || "/proc/self/setgroups".into())?;
        context(fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")), || "/proc/self/uid_map".into())?;
        context(fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")), || "/proc/self/gid_map".into())?;
    }
    // The host's mounts and unmounts still arrive; ours never leave.
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    context(mount(NONE, "/", NONE, flags, NONE), || "mount propagation".into())?;
    context(sethostname(hostname), || format!("host name {hostname}"))
}

/// Makes the pod's part of the view: hosts file, `/dev/shm`, memory volumes, and a place for every mount of its containers.
pub fn prepare_pod(dir: &PodDir, launch: &Launch) -> MountResult<()> {
    context(fs::create_dir_all(dir.stage()), || format!("{}", dir.stage().display()))?;
    for tmpfs in &launch.tmpfs {
        let size = tmpfs.size_bytes.map_or(String::new(), |size| format!(",size={size}"));
        mount_tmpfs(&tmpfs.path, &format!("mode=0777{size}"))?;
    }
    let containers = || launch.init_containers.iter().chain(&launch.containers);
    let mut missing: BTreeMap<PathBuf, BTreeMap<PathBuf, bool>> = BTreeMap::new();
    for container in containers() {
        let targets: Vec<&Path> = container.mounts.iter().map(|m| m.target.as_path()).collect();
        for mount in &container.mounts {
            // Mounted beneath another mount of the container: its place is made there, when that one is mounted.
            if targets.iter().any(|t| *t != mount.target && mount.target.starts_with(t)) {
                continue;
            }
            if let Some((ancestor, target)) = missing_place(&mount.target)? {
                let is_dir = context(fs::metadata(&mount.source), || mount.source.display().to_string())?.is_dir();
                missing.entry(ancestor).or_default().insert(target, is_dir);
            }
        }
    }
    if let Some((ancestor, target)) = missing_place(Path::new(HOSTS))? {
        missing.entry(ancestor).or_default().insert(target, false);
    }
    let shm_is_mounted = containers().any(|c| c.mounts.iter().any(|m| m.target == Path::new("/dev/shm")));
    for (ancestor, places) in &missing {
        if ancestor != Path::new("/") {
            let is_made = is_users_own(ancestor) && make_places(places).is_ok();
            if !is_made {
                replace_directory(dir, ancestor, places)?;
            }
        }
    }
    if Path::new("/dev/shm").is_dir() && !shm_is_mounted {
        mount_tmpfs(Path::new("/dev/shm"), "mode=1777")?;
    }
    bind(&Mount { source: launch.hosts_file.clone(), target: HOSTS.into(), read_only: false })?;
    if let Some(places) = missing.get(Path::new("/")) {
        replace_root(dir, places)?;
    }
    Ok(())
}

/// Mounts a container's volumes, outer paths first. The caller is in a mount namespace of the container's own.
pub fn mount_container(mounts: &[Mount]) -> MountResult<()> {
    let mut ordered: Vec<&Mount> = mounts.iter().collect();
    ordered.sort_by_key(|m| m.target.components().count());
    for mount in ordered {
        if !mount.target.exists() {
            let is_dir = context(fs::metadata(&mount.source), || mount.source.display().to_string())?.is_dir();
            make_place(&mount.target, is_dir)?;
        }
        bind(mount)?;
    }
    Ok(())
}

/// A mount namespace of the caller's own, inside the pod's.
pub fn own_mounts() -> MountResult<()> {
    context(unshare(CloneFlags::CLONE_NEWNS), || "new mount namespace".into())?;
    context(mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE), || "mount propagation".into())
}

fn mount_tmpfs(path: &Path, options: &str) -> MountResult<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    context(mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options)), || format!("tmpfs on {}", path.display()))
}

fn bind(item: &Mount) -> MountResult<()> {
    let describe = || format!("mount {} on {}", item.source.display(), item.target.display());
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    context(mount(Some(&item.source), &item.target, NONE, flags, NONE), describe)?;
    if item.read_only {
        // In a user namespace the flags that the mount was locked with must be given again.
        let stat = context(statvfs(&item.target), describe)?;
        let kept = [
            (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
            (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
            (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
            (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
            // where the C library does not tell, the kernel keeps what there was
            #[cfg(not(target_env = "musl"))]
            (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
        ];
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        for (has, keep) in kept {
            if stat.flags().contains(has) {
                flags |= keep;
            }
        }
        context(mount(NONE, &item.target, NONE, flags, NONE), || format!("{} read-only", describe()))?;
    }
    Ok(())
}

/// Where a target does not exist: its nearest existing ancestor and the target, both without symbolic links on the way.
fn missing_place(target: &Path) -> MountResult<Option<(PathBuf, PathBuf)>> {
    let mut clean = PathBuf::from("/");
    for part in target.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    if clean.exists() {
        return Ok(None);
    }
    for ancestor in clean.ancestors().skip(1) {
        if ancestor.exists() {
            let real = context(ancestor.canonicalize(), || ancestor.display().to_string())?;
            if !real.is_dir() {
                return Err(MountError::NotADirectory { target: target.to_owned(), ancestor: real });
            }
            let rest = clean.strip_prefix(ancestor).expect("invariant: an ancestor is a prefix");
            return Ok(Some((real.clone(), real.join(rest))));
        }
    }
    Err(MountError::NotAbsolute { target: target.to_owned() })
}

/// Whether an empty mount point in this directory is nobody else's business: the user's home, temporary directories,
/// and whatever belongs to an ordinary user.
fn is_users_own(dir: &Path) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1);
    if home.is_some_and(|home| dir.starts_with(home)) {
        return true;
    }
    let ours = [Path::new("/tmp"), Path::new("/var/tmp"), &std::env::temp_dir()].iter().any(|tmp| dir.starts_with(tmp));
    if geteuid().is_root() {
        return ours || fs::metadata(dir).is_ok_and(|m| m.uid() != 0);
    }
    ours || access(dir, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

fn make_places(places: &BTreeMap<PathBuf, bool>) -> MountResult<()> {
    places.iter().try_for_each(|(path, is_dir)| make_place(path, *is_dir))
}

fn make_place(path: &Path, is_dir: bool) -> MountResult<()> {
    let describe = || format!("mount point {}", path.display());
    if is_dir {
        return context(fs::create_dir_all(path), describe);
    }
    if let Some(parent) = path.parent() {
        context(fs::create_dir_all(parent), describe)?;
    }
    context(fs::OpenOptions::new().append(true).create(true).open(path).map(drop), describe)
}

/// Replaces a directory by a tmpfs with the same entries, and makes the places in it.
fn replace_directory(dir: &PodDir, original: &Path, places: &BTreeMap<PathBuf, bool>) -> MountResult<()> {
    let stage = dir.stage();
    copy_by_binding(original, &stage)?;
    make_places(&restage(places, original, &stage))?;
    context(mount(Some(&stage), original, NONE, MsFlags::MS_MOVE, NONE), || format!("move onto {}", original.display()))
}

/// As `replace_directory`, for `/`: the process and all that it starts get a new root.
fn replace_root(dir: &PodDir, places: &BTreeMap<PathBuf, bool>) -> MountResult<()> {
    let root = Path::new("/");
    let stage = dir.stage();
    copy_by_binding(root, &stage)?;
    make_places(&restage(places, root, &stage))?;
    let old = stage.join(".trainyard-old-root");
    context(fs::create_dir(&old), || old.display().to_string())?;
    context(pivot_root(&stage, &old), || "new root".into())?;
    context(std::env::set_current_dir("/"), || "new root".into())?;
    context(umount2("/.trainyard-old-root", MntFlags::MNT_DETACH), || "the old root".into())?;
    context(fs::remove_dir("/.trainyard-old-root"), || "the old root".into())
}

fn restage(places: &BTreeMap<PathBuf, bool>, original: &Path, stage: &Path) -> BTreeMap<PathBuf, bool> {
    let moved = |path: &Path| stage.join(path.strip_prefix(original).unwrap_or(path));
    places.iter().map(|(path, is_dir)| (moved(path), *is_dir)).collect()
}

/// Fills a new tmpfs on `stage` with every entry of `original`: directories, files and devices bound, links copied.
fn copy_by_binding(original: &Path, stage: &Path) -> MountResult<()> {
    let mode = context(fs::metadata(original), || original.display().to_string())?.mode() & 0o7777;
    mount_tmpfs(stage, &format!("mode={mode:o}"))?;
    let is_dev = original == Path::new("/dev");
    let mut seen = BTreeSet::new();
    let entries = match fs::read_dir(original) {
        // The pod's own files go there; those of others it could not have listed either.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            crate::say!("{} may not be listed: the pod sees none of what is in it: {e}", original.display());
            return Ok(());
        }
        other => context(other, || original.display().to_string())?,
    };
    for entry in entries {
        let entry = context(entry, || original.display().to_string())?;
        let name = entry.file_name();
        if !seen.insert(name.clone()) || (is_dev && is_machines_own_device(&name.to_string_lossy())) {
            continue;
        }
        let (from, to) = (entry.path(), stage.join(&name));
        let describe = || from.display().to_string();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_symlink() {
            let link = context(fs::read_link(&from), describe)?;
            context(symlink(link, &to), describe)?;
            continue;
        }
        if kind.is_dir() {
            context(fs::create_dir(&to), describe)?;
        } else if kind.is_socket() && fs::symlink_metadata(&from).is_err() {
            continue;
        } else {
            context(fs::write(&to, ""), describe)?;
        }
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        if let Err(e) = mount(Some(&from), &to, NONE, flags, NONE) {
            // An entry that may not be bound (gone meanwhile, a directory we may not enter) is an empty one for the pod.
            crate::say!("bind {}: {e}", from.display());
        }
    }
    Ok(())
}

/// Terminals, disks and memory of the machine: no pod needs them, and binding each costs time.
fn is_machines_own_device(name: &str) -> bool {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.bytes().next().is_some_and(|b| b.is_ascii_digit()))
    };
    ["tty", "ttyS", "loop", "ram", "vcs", "vcsa", "vcsu"].iter().any(|prefix| numbered(prefix))
        || ["vcs", "vcsa", "vcsu", "mem", "port", "kmem"].contains(&name)
}

/// Every kind of mount that pods need, tried once: for the probe.
pub fn try_all(dir: &Path) -> MountResult<()> {
    let (hosts, stage) = (dir.join("probe-hosts"), dir.join("probe-stage"));
    context(fs::write(&hosts, ""), || hosts.display().to_string())?;
    context(fs::create_dir_all(&stage), || stage.display().to_string())?;
    mount_tmpfs(&stage, "mode=0755")?;
    context(mount(Some(Path::new("/dev")), &stage, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE), || {
        "bind /dev".into()
    })?;
    bind(&Mount { source: hosts, target: HOSTS.into(), read_only: true })
}
