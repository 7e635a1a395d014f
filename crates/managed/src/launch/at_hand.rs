//! The machines at hand, and which of them a task may use.

use super::{Places, Refused, places};
use placement::{Catalogue, Cloud, FreeNode};
use serde_json::{Value as Json, json};
use sky::check::PathKind;
use sky::console::{Circumstances, planned};
use sky::resources::Resources;
use sky::task::Task;
use sky::value::{Map, Value as Field};

/// Where machines are made.
pub const MAKES: [Cloud; 3] = [Cloud::Local, Cloud::Ssh, Cloud::Kubernetes];

/// The places at hand, and the problems with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtHand {
    /// This machine, hosts of pools, and nodes of Kubernetes clusters.
    pub nodes: Vec<FreeNode>,
    /// Names of pools.
    pub pools: Vec<String>,
    pub contexts: Contexts,
    /// `kubernetes` of `~/.sky/config.yaml`.
    pub kubernetes: Option<Map>,
    /// Places that are set up but cannot be used: their names in `infra`, and the reasons.
    pub unusable: Vec<(String, String)>,
    /// Clouds that may be used, in the order in which they are tried.
    pub enabled: Vec<Cloud>,
}

impl AtHand {
    /// The form in which a control plane reports it to a client.
    pub fn to_json(&self) -> Json {
        let node = |node: &FreeNode| {
            json!({
                "cloud": node.cloud.name(), "region": node.region, "isKnown": node.is_known, "cpus": node.cpus,
                "memory": node.memory, "accelerator": node.accelerator,
            })
        };
        json!({
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "pools": self.pools,
            "contexts": self.contexts.all,
            "allowedContexts": self.contexts.allowed,
            "kubernetes": self.kubernetes.clone().map(|map| Field::Map(map).to_json()),
            "unusable": self.unusable,
            "enabled": self.enabled.iter().map(|cloud| cloud.name()).collect::<Vec<_>>(),
        })
    }

    /// Reads that form; `None` for anything else.
    pub fn from_json(told: &Json) -> Option<Self> {
        fn texts(list: &Json) -> Option<Vec<String>> {
            list.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        }
        let node = |node: &Json| {
            let accelerator = match &node["accelerator"] {
                Json::Null => None,
                pair => Some((pair[0].as_str()?.to_owned(), pair[1].as_f64()?)),
            };
            Some(FreeNode {
                cloud: Cloud::from_name(node["cloud"].as_str()?)?,
                region: node["region"].as_str()?.to_owned(),
                is_known: node["isKnown"].as_bool()?,
                cpus: node["cpus"].as_f64()?,
                memory: node["memory"].as_f64()?,
                accelerator,
            })
        };
        let pair = |pair: &Json| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
        Some(Self {
            nodes: told["nodes"].as_array()?.iter().map(node).collect::<Option<_>>()?,
            pools: texts(&told["pools"])?,
            contexts: Contexts { all: texts(&told["contexts"])?, allowed: texts(&told["allowedContexts"])? },
            kubernetes: Field::from_json(&told["kubernetes"]).and_then(|value| value.as_map().cloned()),
            unusable: told["unusable"].as_array()?.iter().map(pair).collect::<Option<_>>()?,
            enabled: texts(&told["enabled"])?.iter().map(|name| Cloud::from_name(name)).collect::<Option<_>>()?,
        })
    }
}

/// The contexts of the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    pub all: Vec<String>,
    /// The contexts that may be used if the task names none, in the order in which they are tried.
    pub allowed: Vec<String>,
}

impl Contexts {
    /// Also allows the contexts that the alternatives of a task name.
    pub fn narrow(&mut self, list: &[Resources]) {
        let named = list.iter().filter(|one| one.infra.cloud == Some(Cloud::Kubernetes));
        for name in named.filter_map(|one| one.infra.region.clone()) {
            if self.all.contains(&name) && !self.allowed.contains(&name) {
                self.allowed.push(name);
            }
        }
    }

    /// Whether any of these alternatives may be on Kubernetes.
    pub fn are_meant(list: &[Resources]) -> bool {
        list.iter().any(|one| one.infra.cloud.is_none_or(|cloud| cloud == Cloud::Kubernetes))
    }
}

/// Where the machines of a task may be. Files of the client are not considered: the task has none any more.
///
/// # Errors
/// No place meets the task's request.
pub fn find(task: &mut Task, at_hand: &AtHand, catalogue: &Catalogue, folder: &str) -> Result<Places, Refused> {
    let world = Circumstances {
        catalogue,
        catalogue_folder: folder,
        enabled: &at_hand.enabled,
        makes: &MAKES,
        nodes: &at_hand.nodes,
        hosts: &[],
        pools: &at_hand.pools,
        contexts: &at_hand.contexts.all,
        unusable: &at_hand.unusable,
        tried: &[],
        read: &|path| Err(format!("{path} is a file of the client")),
        path: &|_| PathKind::Folder,
        variable: &|_| None,
        cluster: "",
    };
    let planned = planned(task, None, &world).map_err(|printed| {
        let (class, message) =
            printed.err.trim_end().split_once(": ").unwrap_or(("ValueError", printed.err.trim_end()));
        Refused::new(class, message)
    })?;
    places(task, &planned, at_hand.kubernetes.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sky::infra::Infra;

    #[test]
    fn a_context_that_is_named_is_allowed() {
        let mut contexts = Contexts { all: vec!["a".into(), "b".into()], allowed: vec!["b".into()] };
        let on = |infra: &str| Resources { infra: Infra::read(infra).unwrap(), ..Resources::default() };
        contexts.narrow(&[on("k8s/a"), on("k8s/none")]);
        assert_eq!(contexts.allowed, ["b", "a"]);
        assert!(Contexts::are_meant(&[on("k8s")]) && !Contexts::are_meant(&[on("ssh")]));
    }

    #[test]
    fn a_task_gets_this_machine_or_a_reason() {
        let node = FreeNode {
            cloud: Cloud::Local,
            region: String::new(),
            is_known: true,
            cpus: 2.0,
            memory: 8.0,
            accelerator: None,
        };
        let at_hand = AtHand { nodes: vec![node], enabled: vec![Cloud::Local], ..AtHand::default() };
        let catalogue = Catalogue::default();
        let of = |text: &str| {
            let read = sky::File::read(text, &sky::Given::default(), sky::Reader::Server, &catalogue).unwrap();
            let [mut task] = <[Task; 1]>::try_from(read.tasks).unwrap();
            find(&mut task, &at_hand, &catalogue, "")
        };
        let found = of("{run: date, resources: {cpus: 1+}}").unwrap();
        assert_eq!(found.candidates.iter().map(|one| one.provider.as_str()).collect::<Vec<_>>(), ["local"]);
        let told = AtHand {
            contexts: Contexts { all: vec!["a".into()], allowed: vec![] },
            kubernetes: sky::value::Value::from_json(&serde_json::json!({"provision_timeout": 5}))
                .unwrap()
                .as_map()
                .cloned(),
            unusable: vec![("ssh/lab".into(), "no hosts".into())],
            ..at_hand.clone()
        };
        assert_eq!(AtHand::from_json(&told.to_json()), Some(told));
        assert_eq!(AtHand::from_json(&serde_json::json!({"nodes": []})), None);
        let refused = of("{run: date, resources: {cpus: 64}}").unwrap_err();
        assert_eq!(refused.class, "sky.exceptions.ResourcesUnavailableError");
    }
}
