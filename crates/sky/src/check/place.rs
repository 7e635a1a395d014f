//! Region and zone of a machine, as price lists, kubeconfigs and pools know them.

use placement::{Catalogue, Cloud};

use super::Surroundings;
use super::table::{table, wrapped};
use crate::error::TaskError;
use crate::infra::Infra;
use crate::resources::Resources;
use crate::suggest;
use crate::value::{quote, quote_all};

/// `None`, or a text in quotes.
fn quoted_or_none(text: Option<&str>) -> String {
    text.map_or_else(|| "None".to_owned(), quote)
}

pub(super) fn displays(clouds: &[Cloud]) -> String {
    format!("[{}]", clouds.iter().map(|cloud| cloud.display()).collect::<Vec<_>>().join(", "))
}

/// `for cloud X`, or `for any cloud among [X, Y]`.
pub(super) fn for_clouds(clouds: &[Cloud]) -> String {
    match clouds {
        [one] => format!("for cloud {}", one.display()),
        many => format!("for any cloud among {}", displays(many)),
    }
}

/// Region and zone exist; they name the cloud where none is named.
pub(super) fn check(resources: &mut Resources, around: &Surroundings<'_>) -> Result<(), TaskError> {
    let infra = resources.infra.clone();
    if infra.region.is_none() && infra.zone.is_none() {
        return Ok(());
    }
    let at = |error: TaskError| error.at("$.resources.infra");
    if let Some(cloud) = infra.cloud {
        resources.infra = in_cloud(cloud, &infra, around).map_err(at)?;
        return Ok(());
    }
    let mut fitting = Vec::new();
    let mut hints = Vec::new();
    for cloud in around.enabled.iter().copied() {
        match in_cloud(cloud, &infra, around) {
            Ok(found) => fitting.push((cloud, found)),
            Err(error) => hints.push((cloud.display().to_owned(), error.message)),
        }
    }
    let asked =
        format!("(region {}, zone {})", quoted_or_none(infra.region.as_deref()), quoted_or_none(infra.zone.as_deref()));
    match fitting.as_slice() {
        [] => {
            let hint = match hints.as_slice() {
                [(_, only)] => only.clone(),
                _ => {
                    let rows = hints.iter().map(|(cloud, hint)| vec![cloud.clone(), wrapped(hint, 80)]);
                    table(["Cloud", "Hint"], std::iter::once(vec!["-----".into(), "----".into()]).chain(rows).collect())
                }
            };
            Err(at(TaskError::value(format!("Invalid {asked} {}. Details:\n{hint}", for_clouds(around.enabled)))))
        }
        [(_, found)] => {
            resources.infra = found.clone();
            Ok(())
        }
        many => {
            let clouds: Vec<Cloud> = many.iter().map(|(cloud, _)| *cloud).collect();
            Err(at(TaskError::value(format!(
                "Cannot infer cloud from {asked}. Multiple enabled clouds have region/zone of the same names: {}. To fix: explicitly specify `cloud`.",
                displays(&clouds)
            ))))
        }
    }
}

/// Region and zone as a cloud has them.
fn in_cloud(cloud: Cloud, infra: &Infra, around: &Surroundings<'_>) -> Result<Infra, TaskError> {
    let found = |region: Option<String>| Ok(Infra { cloud: Some(cloud), region, zone: infra.zone.clone() });
    let (region, zone) = (infra.region.as_deref(), infra.zone.as_deref());
    let unknown = |known: &[String]| region.filter(|region| !known.iter().any(|one| one == region));
    match cloud {
        Cloud::Kubernetes => {
            if let Some(context) = unknown(around.contexts) {
                return Err(TaskError::value(format!(
                    "Context {context} not found in kubeconfig. Kubernetes only supports context names as regions. Available contexts: {}",
                    quote_all(around.contexts)
                )));
            }
            if zone.is_some() {
                return Err(TaskError::value(
                    "Kubernetes support does not support setting zone. Cluster used is determined by the kubeconfig.",
                ));
            }
            found(infra.region.clone())
        }
        Cloud::Ssh => {
            let pool = region.map(|region| region.strip_prefix("ssh-").unwrap_or(region));
            if let Some(pool) = pool.filter(|pool| !around.ssh_pools.iter().any(|known| known == pool)) {
                let known = if around.ssh_pools.is_empty() {
                    String::new()
                } else {
                    format!("Available node pools: {}", quote_all(around.ssh_pools))
                };
                return Err(TaskError::value(format!(
                    "SSH Node Pool {} is not set up. Run `sky check` for more details. {known}",
                    quote(pool)
                )));
            }
            if zone.is_some() {
                return Err(TaskError::value("SSH Node Pools do not support setting zone."));
            }
            found(infra.region.clone())
        }
        Cloud::Slurm => {
            if let Some(cluster) = unknown(around.slurm_clusters) {
                return Err(TaskError::value(format!(
                    "Cluster {cluster} not found in Slurm config. Slurm only supports cluster names as regions. Available clusters: {}",
                    quote_all(around.slurm_clusters)
                )));
            }
            if zone.is_some() && region.is_none() {
                return Err(TaskError::value(
                    "Cannot specify partition (zone) without specifying cluster (region) for Slurm.",
                ));
            }
            found(infra.region.clone())
        }
        _ => in_price_list(cloud, infra, around.catalogue),
    }
}

/// Clouds whose machines have no zone, by the name that their message has.
fn without_zones(cloud: Cloud) -> Option<&'static str> {
    match cloud {
        Cloud::Azure => Some("Azure"),
        Cloud::Lambda => Some("Lambda Cloud"),
        Cloud::Cudo => Some("Cudo"),
        Cloud::Do => Some("DO"),
        Cloud::Fluidstack => Some("FluidStack Cloud"),
        Cloud::Hyperbolic => Some("Hyperbolic"),
        Cloud::Mithril => Some("Mithril"),
        Cloud::Nebius => Some("Nebius"),
        Cloud::Paperspace => Some("Paperspace"),
        Cloud::Scp => Some("SCP Cloud"),
        Cloud::Seeweb => Some("Seeweb"),
        Cloud::Vast => Some("Vast"),
        Cloud::Verda => Some("Verda"),
        Cloud::Yotta => Some("Yotta"),
        _ => None,
    }
}

fn in_price_list(cloud: Cloud, infra: &Infra, catalogue: &Catalogue) -> Result<Infra, TaskError> {
    if let (Some(name), Some(_)) = (without_zones(cloud), &infra.zone) {
        return Err(TaskError::value(format!("{name} does not support zones.")));
    }
    let offers = catalogue.offers(cloud);
    if offers.is_empty() {
        // no price list of this cloud is here: nothing is known, and nothing is refused
        return Ok(Infra { cloud: Some(cloud), ..infra.clone() });
    }
    let mut regions: Vec<String> = offers.iter().map(|offer| offer.region.to_lowercase()).collect();
    regions.sort();
    regions.dedup();
    let mut found = Infra { cloud: Some(cloud), ..infra.clone() };
    if let Some(region) = &infra.region {
        match offers.iter().find(|offer| offer.region.eq_ignore_ascii_case(region)) {
            Some(offer) => found.region = Some(offer.region.clone()),
            None => return Err(unknown_region(cloud, region, &regions)),
        }
    }
    if let Some(zone) = &infra.zone {
        let here = || {
            offers
                .iter()
                .filter(|offer| infra.region.as_ref().is_none_or(|region| offer.region.eq_ignore_ascii_case(region)))
        };
        match here().find(|offer| offer.zone.as_ref() == Some(zone)) {
            Some(offer) => found.region = Some(offer.region.clone()),
            None => {
                let mut zones: Vec<&str> = here().filter_map(|offer| offer.zone.as_deref()).collect();
                zones.sort_unstable();
                zones.dedup();
                let region =
                    infra.region.as_ref().map(|region| format!(" for region {}", quote(region))).unwrap_or_default();
                return Err(TaskError::value(format!(
                    "Invalid zone {}{region}{}",
                    quote(zone),
                    did_you_mean(zone, &zones)
                )));
            }
        }
    }
    Ok(found)
}

fn unknown_region(cloud: Cloud, region: &str, known: &[String]) -> TaskError {
    let near = did_you_mean(&region.to_lowercase(), &known.iter().map(String::as_str).collect::<Vec<_>>());
    let hint = if near.is_empty() {
        let faq = match cloud {
            // their price lists hold some regions unless they are fetched anew
            Cloud::Azure | Cloud::Gcp => {
                "\nIf a region is not included in the following list, please check the FAQ docs for how to fetch its catalog info.\nhttps://docs.skypilot.co/en/latest/reference/faq.html#advanced-how-to-make-skypilot-use-all-global-regions"
            }
            _ => "",
        };
        format!("{faq}\nList of supported {} regions: {}", cloud.name(), quote(&known.join(", ")))
    } else {
        near
    };
    TaskError::value(format!("Invalid region {}{hint}", quote(region)))
}

fn did_you_mean(word: &str, known: &[&str]) -> String {
    let mut near = suggest::near(word, known.iter().copied(), 5);
    near.sort_unstable();
    if near.is_empty() { String::new() } else { format!("\nDid you mean one of these: {}?", quote(&near.join(", "))) }
}
