//! The outside of the provider `ssh`: hosts that are folders of this machine, and a program `ssh` that runs commands in them.
//!
//! The scripts are the real ones, run by `sh`. The program that they bring to a host and start there is a copy of bash, which runs a script
//! `node`.

use crate::cases::{Outside, Trouble};
use api::sky::{Candidate, providers};
use futures::FutureExt;
use futures::future::BoxFuture;
use infra::access::{Access, Duplex, Identity, Pass, PassError};
use infra::{Attention, Provider, ssh};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Where the fake `ssh` finds its world: the folder above the one in which it is run.
const SSH: &str = r#"#!/bin/sh
world=$(cd .. && pwd)
mode=run
while [ $# -gt 0 ]; do
  case $1 in
    -M) mode=master ;;
    -O) mode=forward; shift ;;
    -S | -o | -l | -i | -R) shift ;;
    --) shift; break ;;
  esac
  shift
done
fails() { echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255; }
[ ! -e "$world/cut" ] || fails "$1"
HOME=$world/hosts/$1 PATH=$world/bin:$PATH
export HOME PATH
[ $mode != forward ] || { echo 40001; exit 0; }
[ $mode != master ] || exec sh -c "$2"
calls=$(($(cat "$world/calls") + 1))
echo $calls >"$world/calls"
read -r trouble at <"$world/trouble"
# as sshd does, the one that a command sees as its parent is of this session alone: a new session may kill it
[ "$at" = $calls ] || { sh -c "$2"; exit $?; }
stuck() { touch "$world/stuck"; exec sleep 1000; }
case $trouble in
  Fails) fails "$1" ;;
  KilledBefore) stuck ;;
esac
sh -c "$2" >/dev/null 2>&1
case $trouble in
  LosesAnswer) fails "$1" ;;
  KilledAfter) stuck ;;
esac
"#;

pub const NODE: &str = r#"
data='' stop=''
while [ $# -gt 0 ]; do
  case $1 in --data) data=$2; shift ;; --stop) stop=1 ;; esac
  shift
done
if [ -n "$stop" ]; then
  pid=$(cat "$data/agent.lock" 2>/dev/null) && kill "$pid" 2>/dev/null
  exit 0
fi
echo $$ >"$data/agent.lock"
while :; do read -r -t 1000 _ <> <(:); done
"#;

/// The folder of the fake `ssh`, which must be on the PATH.
pub fn program(folder: &Path) -> PathBuf {
    let path = folder.join("ssh");
    fs::write(&path, SSH).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

pub struct Door;

impl Access for Door {
    fn pass<'a>(&'a self, machine: &'a Identity, _: u16) -> BoxFuture<'a, Result<Pass, PassError>> {
        let uid = machine.token.clone();
        async { Ok(Pass { kubeconfig: "{}".into(), uid }) }.boxed()
    }

    fn carry(&self, _: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

pub struct Hosts {
    root: tempfile::TempDir,
}

impl Hosts {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["bin", "hosts/h1", "hosts/h2"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("pools"), "lab:\n  hosts: [h1, h2]\n").unwrap();
        fs::copy("/bin/bash", at("program")).unwrap();
        fs::write(at("bin/node"), NODE).unwrap();
        let world = Self { root };
        world.trouble(None);
        world
    }

    fn claims(&self) -> Vec<PathBuf> {
        let hosts = fs::read_dir(self.root.path().join("hosts")).unwrap().flatten();
        let bases = hosts.filter_map(|host| fs::read_dir(host.path().join(".trainyard-machine")).ok());
        let folders = bases.flatten().flatten().map(|entry| entry.path());
        folders.filter(|folder| folder.join("claim").exists()).collect()
    }
}

/// Kills the agent of a machine by the machine's folder.
pub fn kill_agent(folder: &Path) {
    let pid = fs::read_to_string(folder.join("node/agent.lock")).unwrap_or_default();
    if !pid.trim().is_empty() {
        let _ = Command::new("kill").args(["-9", pid.trim()]).output(); // it may have ended
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.claims().iter().for_each(|folder| kill_agent(folder));
    }
}

impl Outside for Hosts {
    fn provider(&self) -> Arc<dyn Provider> {
        let root = self.root.path();
        let settings = ssh::Settings {
            folder: root.join("records"),
            pools: root.join("pools"),
            home: root.to_owned(),
            owner: "me".into(),
            api_server: "127.0.0.1:1".parse().unwrap(),
            program: root.join("program"),
            attention: Attention::default(),
        };
        Arc::new(ssh::Machines::new(settings, Arc::new(Door)))
    }

    fn candidate(&self) -> Candidate {
        Candidate { provider: providers::SSH.into(), region: "lab".into(), ..Candidate::default() }
    }

    fn machines(&self) -> usize {
        self.claims().len()
    }

    fn trouble(&self, trouble: Option<(Trouble, usize)>) {
        let root = self.root.path();
        let text = trouble.map_or("None 0\n".to_owned(), |(trouble, at)| format!("{trouble:?} {at}\n"));
        fs::write(root.join("trouble"), text).unwrap();
        fs::write(root.join("calls"), "0\n").unwrap();
        let _ = fs::remove_file(root.join("stuck")); // it may not be there
    }

    fn is_stuck(&self) -> bool {
        self.root.path().join("stuck").exists()
    }

    fn end(&self) -> &'static str {
        for folder in self.claims() {
            fs::remove_file(folder.join("claim")).unwrap();
        }
        "claim on host lab/h1 is gone"
    }

    fn cut(&self, is_cut: bool) -> bool {
        let path = self.root.path().join("cut");
        if is_cut {
            fs::write(path, "").unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        true
    }
}
