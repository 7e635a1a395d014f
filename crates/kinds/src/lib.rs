//! Kinds of Kubernetes itself: schemas, defaults, validation, strategies.

mod access;
mod account;
mod admissionregistration;
mod apps;
mod bootstrap;
mod catalog;
mod core;
mod definition;
mod event;
mod ingress;
mod job;
mod kit;
mod limits;
mod misc;
mod network;
mod plain;
mod pod;
mod podspec;
mod quota;
mod service;
mod storage;

pub use access::restriction::NodeRestriction;
pub use bootstrap::own_service;

use access::{AccessReview, Binding, Role, RulesReview, SelfReview, TokenReview};
use apps::Workload;
use catalog::Kind;
use resource::{Kinds, Resource};
use serde_json::Value;
use std::sync::Arc;

/// The built-in kinds, and what goes with them.
pub fn built_in() -> Kinds {
    Kinds {
        resources: resources(),
        objects: bootstrap::bootstrap(),
        access: Arc::new(access::Modes),
        quotas: Arc::new(quota::Rules),
    }
}

/// The order in which groups are described.
const GROUPS: [&str; 17] = [
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "metrics.k8s.io",
];

/// All built-in kinds.
pub fn resources() -> Vec<Resource> {
    let kinds = vec![
        // core
        Kind::new("", "Binding", "bindings", pod::Bindings).asked(),
        Kind::new("", "ConfigMap", "configmaps", core::ConfigMaps).short(&["cm"]).columns("Name,Data,Age"),
        Kind::new("", "Endpoints", "endpoints", core::Endpoints).short(&["ep"]).columns("Name,Endpoints,Age"),
        Kind::new("", "Event", "events", event::CoreEvents).short(&["ev"]).columns(
            "Last Seen,Type,Reason,Object,Subobject/wide,Source/wide,Message,First Seen/wide,Count/wide,Name/wide",
        ),
        Kind::new("", "LimitRange", "limitranges", limits::LimitRanges).short(&["limits"]),
        Kind::new("", "Namespace", "namespaces", core::Namespaces)
            .cluster()
            .not_as_collection()
            .short(&["ns"])
            .sub("finalize", "", "Namespace", &["update"])
            .status()
            .columns("Name,Status,Age"),
        Kind::new("", "Node", "nodes", core::Nodes).cluster().short(&["no"]).status().columns(
            "Name,Status,Roles,Age,Version,|Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime",
        ),
        Kind::new("", "PersistentVolume", "persistentvolumes", storage::Volumes).cluster().short(&["pv"]).status().columns(
            "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,|VolumeMode",
        ),
        Kind::new("", "PersistentVolumeClaim", "persistentvolumeclaims", storage::Claims).short(&["pvc"]).status().columns(
            "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,|VolumeMode",
        ),
        Kind::new("", "Pod", "pods", pod::Pods)
            .short(&["po"])
            .category("all")
            .status()
            .sub("attach", "", "PodAttachOptions", &["create", "get"])
            .sub("binding", "", "Binding", &["create"])
            .sub("ephemeralcontainers", "", "Pod", &["get", "patch", "update"])
            .sub("eviction", "policy", "Eviction", &["create"])
            .sub("exec", "", "PodExecOptions", &["create", "get"])
            .sub("log", "", "Pod", &["get"])
            .sub("portforward", "", "PodPortForwardOptions", &["create", "get"])
            .sub("proxy", "", "PodProxyOptions", &["create", "delete", "get", "patch", "update"])
            .sub("resize", "", "Pod", &["get", "patch", "update"])
            .columns("Name,Ready,Status,Restarts,Age,|IP,Node,Nominated Node,Readiness Gates"),
        Kind::new("", "PodTemplate", "podtemplates", core::PodTemplates).columns("Name,Containers,Images,Pod Labels"),
        Kind::new("", "ReplicationController", "replicationcontrollers", Workload::ReplicationController)
            .short(&["rc"])
            .category("all")
            .status()
            .scale()
            .columns("Name,Desired:integer,Current:integer,Ready:integer,Age,|Containers,Images,Selector"),
        Kind::new("", "ResourceQuota", "resourcequotas", quota::ResourceQuotas)
            .short(&["quota"])
            .status()
            .columns("Name,Request,Limit,Age"),
        Kind::new("", "Secret", "secrets", core::Secrets).columns("Name,Type,Data,Age"),
        Kind::new("", "Service", "services", service::Services)
            .short(&["svc"])
            .category("all")
            .status()
            .columns("Name,Type,Cluster-IP,External-IP,Port(s),Age,|Selector"),
        Kind::new("", "ServiceAccount", "serviceaccounts", account::Accounts)
            .short(&["sa"])
            .sub("token", "authentication.k8s.io", "TokenRequest", &["create"])
            .columns("Name,Age"),
        // apps
        Kind::new("apps", "ControllerRevision", "controllerrevisions", apps::ControllerRevisions)
            .columns("Name,Controller,Revision,Age"),
        Kind::new("apps", "DaemonSet", "daemonsets", Workload::DaemonSet).short(&["ds"]).category("all").status().columns(
            "Name,Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,Node Selector,Age,\
             |Containers,Images,Selector",
        ),
        Kind::new("apps", "Deployment", "deployments", Workload::Deployment)
            .short(&["deploy"])
            .category("all")
            .status()
            .scale()
            .columns("Name,Ready,Up-to-date,Available,Age,|Containers,Images,Selector"),
        Kind::new("apps", "ReplicaSet", "replicasets", Workload::ReplicaSet)
            .short(&["rs"])
            .category("all")
            .status()
            .scale()
            .columns("Name,Desired:integer,Current:integer,Ready:integer,Age,|Containers,Images,Selector"),
        Kind::new("apps", "StatefulSet", "statefulsets", Workload::StatefulSet)
            .short(&["sts"])
            .category("all")
            .status()
            .scale()
            .columns("Name,Ready,Age,|Containers,Images"),
        // batch
        Kind::new("batch", "Job", "jobs", job::Jobs)
            .category("all")
            .status()
            .columns("Name,Status,Completions,Duration,Age,|Containers,Images,Selector"),
        Kind::new("batch", "CronJob", "cronjobs", job::CronJobs)
            .short(&["cj"])
            .category("all")
            .status()
            .columns("Name,Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,|Containers,Images,Selector"),
        Kind::new("events.k8s.io", "Event", "events", event::Events).short(&["ev"]).columns(
            "Last Seen,Type,Reason,Object,Subobject/wide,Source/wide,Message,First Seen/wide,Count/wide,Name/wide",
        ),
        Kind::new("coordination.k8s.io", "Lease", "leases", core::Leases).columns("Name,Holder,Age"),
        Kind::new("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", definition::Definitions)
            .cluster()
            .short(&["crd", "crds"])
            .category("api-extensions")
            .status(),
        // asked
        Kind::new("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", AccessReview { own: false }).asked(),
        Kind::new("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", AccessReview { own: true })
            .cluster()
            .asked(),
        Kind::new("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", RulesReview).cluster().asked(),
        Kind::new("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", AccessReview { own: false }).cluster().asked(),
        Kind::new("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", SelfReview).cluster().asked(),
        Kind::new("authentication.k8s.io", "TokenReview", "tokenreviews", TokenReview).cluster().asked(),
        // rbac
        Kind::new("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", Role { plural: "clusterroles" }).cluster(),
        Kind::new("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", Binding { plural: "clusterrolebindings" })
            .cluster()
            .columns("Name,Role,Age,|Users,Groups,ServiceAccounts"),
        Kind::new("rbac.authorization.k8s.io", "Role", "roles", Role { plural: "roles" }),
        Kind::new("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", Binding { plural: "rolebindings" })
            .columns("Name,Role,Age,|Users,Groups,ServiceAccounts"),
        // the rest
        Kind::new("scheduling.k8s.io", "PriorityClass", "priorityclasses", misc::PriorityClasses)
            .cluster()
            .short(&["pc"])
            .columns("Name,Value:integer,Global-Default:boolean,Age,PreemptionPolicy"),
        Kind::new("node.k8s.io", "RuntimeClass", "runtimeclasses", misc::RuntimeClasses).cluster().columns("Name,Handler,Age"),
        Kind::new("policy", "PodDisruptionBudget", "poddisruptionbudgets", misc::Budgets)
            .short(&["pdb"])
            .status()
            .columns("Name,Min Available,Max Unavailable,Allowed Disruptions:integer,Age"),
        Kind::new("networking.k8s.io", "Ingress", "ingresses", ingress::Ingresses)
            .short(&["ing"])
            .status()
            .columns("Name,Class,Hosts,Address,Ports,Age"),
        Kind::new("networking.k8s.io", "NetworkPolicy", "networkpolicies", misc::NetworkPolicies)
            .short(&["netpol"])
            .columns("Name,Pod-Selector,Age"),
        Kind::new("storage.k8s.io", "StorageClass", "storageclasses", storage::Classes)
            .cluster()
            .short(&["sc"])
            .columns("Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age"),
        Kind::new("discovery.k8s.io", "EndpointSlice", "endpointslices", misc::EndpointSlices)
            .columns("Name,AddressType,Ports,Endpoints,Age"),
        Kind::new("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", admissionregistration::MutatingPolicies)
            .cluster()
            .category("api-extensions")
            .columns("Name,Mutations:integer,ParamKind,Age"),
        Kind::new(
            "admissionregistration.k8s.io",
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
            admissionregistration::MutatingPolicyBindings,
        )
        .cluster()
        .category("api-extensions")
        .columns("Name,PolicyName,ParamRef,Age"),
        Kind::new("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", admissionregistration::Policies)
            .cluster()
            .category("api-extensions")
            .status()
            .columns("Name,Validations:integer,ParamKind,Age"),
        Kind::new(
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            admissionregistration::PolicyBindings,
        )
        .cluster()
        .category("api-extensions")
        .columns("Name,PolicyName,ParamRef,Age"),
        Kind::new(
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            admissionregistration::Webhooks { mutating: true },
        )
        .cluster()
        .category("api-extensions")
        .columns("Name,Webhooks:integer,Age"),
        Kind::new(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            admissionregistration::Webhooks { mutating: false },
        )
        .cluster()
        .category("api-extensions")
        .columns("Name,Webhooks:integer,Age"),
    ];
    let mut resources: Vec<Resource> = kinds.into_iter().map(Kind::done).collect();
    let place = |resource: &Resource| GROUPS.iter().position(|group| *group == resource.group);
    resources.sort_by_key(place);
    resources
}

/// The name that a refusal shows: before a name is generated, its prefix.
fn shown_name(object: &Value) -> &str {
    pod::shown_name(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_type() {
        for resource in resources() {
            assert!(resource.type_name.is_some(), "{} {}", resource.group, resource.kind);
        }
    }
}
