//! Boot images: files that Proxmox downloads itself.
//!
//! A file has no tags, so its name carries whose it is: `<name>.butler.<cluster>.<cluster uid>.<object uid>.<format>`. A
//! storage that the nodes don't share needs the file on every one of them.

use super::driver::{Driver, Followed, RunningTask, SOON};
use super::error::CallError;
use super::mutation::Wire;
use crate::change::PlannedChange;
use crate::failure::{Class, Failure};
use crate::http::{escape, recheck_after};
use crate::seam::{ImageFacts, ImageWanted, Images, Operation, OwnedResource, Owner, Progress};
use async_trait::async_trait;
use reqwest::Method;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Images of one Proxmox cluster.
pub(crate) struct ProxmoxImages(pub(crate) Arc<Driver>);

/// Where files can be.
struct Places {
    /// Nodes that machines are put on.
    ours: Vec<String>,
    /// Nodes that may have been ours before somebody took them out of the ProviderConfig.
    others: Vec<String>,
    /// Nodes of ours that can't be looked at now, and have files of their own.
    down: Vec<String>,
}

impl Places {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.ours.iter().chain(&self.others)
    }

    /// What can't be looked at is not absent.
    fn all_up(&self, object: &str) -> Result<(), Failure> {
        if self.down.is_empty() {
            return Ok(());
        }
        let down = self.down.join(", ");
        Err(Failure::new(
            Class::Retryable,
            "NodeUnreachable",
            format!("{object}: the files on {down} can't be seen or removed while it is down"),
            "bring the Proxmox node back; or take it out of nodes in the ProviderConfig, and remove its file by hand",
        ))
    }
}

#[async_trait]
impl Images for ProxmoxImages {
    async fn ensure(
        &self,
        wanted: &ImageWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<ImageFacts>, Failure> {
        let object = format!("image {}", wanted.name);
        let file = file_name(wanted)?;
        if let Followed::Running { recheck, upid } = self.0.follow(operation, &object).await? {
            return Ok(Progress::waiting("the download to finish", Some(Operation(upid)), recheck));
        }
        let storage = &self.0.settings.image_storage;
        let volume = format!("{storage}:import/{file}");
        let hosts = self.0.all_online(&object).await?;
        for node in self.places(&hosts, &object).await?.ours {
            if self.volumes(&node, &object).await?.contains(&volume) {
                continue;
            }
            // Asked for already, and the answer was lost: the same file is not fetched twice.
            if let Some(upid) = self.being_fetched(std::slice::from_ref(&node), wanted, &object).await? {
                return Ok(Progress::waiting("the download to finish", Some(Operation(upid)), SOON));
            }
            let change =
                PlannedChange::new("image", &wanted.name, download_words(wanted, storage, &node)).to_string();
            return match self.0.send(download(wanted, storage, &node, &file), &change).await {
                Ok(operation) => {
                    let what = format!("{node} to download {}", wanted.url);
                    Ok(Progress::waiting(what, operation, recheck_after(Duration::ZERO)))
                }
                // An earlier download whose answer was lost.
                Err(CallError::Refused(refusal)) if refusal.id_taken() => Ok(Progress::waiting(
                    "another look: the file is there",
                    None,
                    recheck_after(Duration::ZERO),
                )),
                Err(error) => Err(error.failure(&change)),
            };
        }
        Ok(Progress::Ready(ImageFacts { image_ref: volume, sha256: wanted.sha256.clone() }))
    }

    async fn delete(
        &self,
        wanted: &ImageWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let object = format!("image {}", wanted.name);
        if let Followed::Running { recheck, upid } = self.0.follow(operation, &object).await? {
            return Ok(Progress::waiting("the file's task to finish", Some(Operation(upid)), recheck));
        }
        // A file that is being fetched is not listed before it is whole. Tasks first: one that ends between the two looks has
        // its file in the list.
        let hosts = self.0.all_online(&object).await?;
        if let Some(upid) = self.being_fetched(&hosts, wanted, &object).await? {
            return Ok(Progress::waiting("the file's download to finish", Some(Operation(upid)), SOON));
        }
        let storage = &self.0.settings.image_storage;
        let places = self.places(&hosts, &object).await?;
        // Twice: one list that is behind, as that of a shared file system can be, must not make a file be forgotten.
        for node in places.all().chain(places.all()) {
            // By name and owner, not by the whole file name: whoever found it by `owned` knows no format.
            let volumes = self.volumes_at(node, &places, &object).await?;
            let Some(volume) = volumes.into_iter().find(|volume| is_of(volume, wanted)) else { continue };
            let words = format!("delete the file from {storage} on {node}");
            let change = PlannedChange::new("image", &wanted.name, words).to_string();
            let path =
                format!("/nodes/{}/storage/{}/content/{}", escape(node), escape(storage), escape(&volume));
            let wire = Wire { method: Method::DELETE, path, form: Vec::new() };
            let operation = match self.0.send(wire, &change).await {
                Ok(operation) => operation,
                Err(CallError::Refused(refusal)) if refusal.words().contains("does not exist") => None,
                Err(error) => return Err(error.failure(&change)),
            };
            return Ok(Progress::waiting(
                format!("the file to go from {node}"),
                operation,
                recheck_after(Duration::ZERO),
            ));
        }
        // Last, so that whatever can be reached is gone by then.
        places.all_up(&object)?;
        Ok(Progress::Ready(()))
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let object = "images of ours";
        let mut found: Vec<OwnedResource> = Vec::new();
        let hosts = self.0.all_online(object).await?;
        let places = self.places(&hosts, object).await?;
        places.all_up(object)?;
        for node in places.all() {
            for volume in self.volumes_at(node, &places, object).await? {
                let Some((name, owner)) = owner_of(&volume) else { continue };
                let known = found.iter().any(|other| other.id == volume);
                if !known && cluster_uid.is_none_or(|uid| uid == owner.cluster_uid) {
                    found.push(OwnedResource { kind: "image".to_owned(), name, id: volume, owner });
                }
            }
        }
        Ok(found)
    }
}

impl ProxmoxImages {
    /// Nodes whose storage has to be looked at, of those that are up: the first when they share it, else all.
    async fn places(&self, hosts: &[String], object: &str) -> Result<Places, Failure> {
        let settings = &self.0.settings;
        let storage = &settings.image_storage;
        let (ours, down): (Vec<String>, Vec<String>) =
            settings.nodes.iter().cloned().partition(|node| hosts.contains(node));
        let Some(first) = ours.first() else {
            let ours = settings.place("", &[]).map(|node| vec![node])?;
            return Ok(Places { ours, others: Vec::new(), down: Vec::new() });
        };
        let path = format!("/nodes/{}/storage/{}/status", escape(first), escape(storage));
        let status = self.0.client.get(&path, object).await;
        let status = status
            .map_err(|error| error.failure(&format!("looking at the storage {storage} for {object}")))?;
        if status.get("shared").and_then(super::model::number) == Some(1) {
            return Ok(Places { ours: vec![first.clone()], others: Vec::new(), down: Vec::new() });
        }
        let others = hosts.iter().filter(|node| !settings.nodes.contains(node)).cloned().collect();
        Ok(Places { ours, others, down })
    }

    /// Files on one of the places. A node that is not ours need not have the storage.
    async fn volumes_at(
        &self,
        node: &str,
        places: &Places,
        object: &str,
    ) -> Result<BTreeSet<String>, Failure> {
        match self.volumes(node, object).await {
            Err(failure)
                if failure.class == Class::InvalidConfig
                    && places.others.iter().any(|other| other == node) =>
            {
                Ok(BTreeSet::new())
            }
            told => told,
        }
    }

    /// A task that is fetching the image on one of some nodes.
    async fn being_fetched(
        &self,
        nodes: &[String],
        wanted: &ImageWanted,
        object: &str,
    ) -> Result<Option<String>, Failure> {
        for node in nodes {
            let running = self.0.running_tasks(node, object).await?;
            // The task's id is the file's name.
            let ours = |task: &RunningTask| task.kind == "download" && is_of(&task.id, wanted);
            if let Some(task) = running.into_iter().find(ours) {
                return Ok(Some(task.upid));
            }
        }
        Ok(None)
    }

    async fn volumes(&self, node: &str, object: &str) -> Result<BTreeSet<String>, Failure> {
        let storage = &self.0.settings.image_storage;
        let path = format!("/nodes/{}/storage/{}/content?content=import", escape(node), escape(storage));
        let value = self.0.client.get(&path, object).await;
        let value =
            value.map_err(|error| error.failure(&format!("listing {storage} on {node} for {object}")))?;
        let entries = value.as_array().into_iter().flatten();
        Ok(entries.filter_map(|entry| Some(entry.get("volid").and_then(Value::as_str)?.to_owned())).collect())
    }
}

/// The request that downloads an image.
fn download(wanted: &ImageWanted, storage: &str, node: &str, file: &str) -> Wire {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut form = vec![pair("content", "import"), pair("url", &wanted.url), pair("filename", file)];
    if let Some(sum) = &wanted.sha256 {
        form.push(pair("checksum", sum));
        form.push(pair("checksum-algorithm", "sha256"));
    }
    let path = format!("/nodes/{}/storage/{}/download-url", escape(node), escape(storage));
    Wire { method: Method::POST, path, form }
}

pub(crate) fn download_words(wanted: &ImageWanted, storage: &str, node: &str) -> String {
    let sum = if wanted.sha256.is_some() { ", SHA-256 checked" } else { "" };
    format!("download {} to {storage} on {node}{sum}", wanted.url)
}

/// The file's name with its owner in it.
pub(crate) fn file_name(wanted: &ImageWanted) -> Result<String, Failure> {
    if !["qcow2", "raw"].contains(&wanted.format.as_str()) {
        return Err(Failure::new(
            Class::InvalidConfig,
            "ImageFormat",
            format!("image {}: Proxmox imports no {}", wanted.name, wanted.format),
            "use the format qcow2 or raw",
        ));
    }
    let Owner { cluster, cluster_uid, object_uid } = &wanted.owner;
    let parts = [wanted.name.as_str(), "butler", cluster, cluster_uid, object_uid].map(safe);
    Ok(format!("{}.{}", parts.join("."), wanted.format))
}

/// A text as it is written in a file's name.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' }).collect()
}

/// Whether a volume is that image, in whatever format.
fn is_of(volume: &str, wanted: &ImageWanted) -> bool {
    let Owner { cluster, cluster_uid, object_uid } = &wanted.owner;
    let owner =
        Owner { cluster: safe(cluster), cluster_uid: safe(cluster_uid), object_uid: safe(object_uid) };
    owner_of(volume) == Some((safe(&wanted.name), owner))
}

/// Name and owner of a volume of ours.
fn owner_of(volume: &str) -> Option<(String, Owner)> {
    let file = volume.rsplit('/').next()?;
    let parts: Vec<&str> = file.split('.').collect();
    let [name, "butler", cluster, cluster_uid, object_uid, _format] = parts.as_slice() else { return None };
    let owner = Owner {
        cluster: (*cluster).to_owned(),
        cluster_uid: (*cluster_uid).to_owned(),
        object_uid: (*object_uid).to_owned(),
    };
    Some(((*name).to_owned(), owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_says_whose_it_is() {
        let owner = Owner { cluster: "mgmt".into(), cluster_uid: "c-1".into(), object_uid: "o-1".into() };
        let mut wanted = ImageWanted {
            owner: owner.clone(),
            name: "nocloud-v1.10-butler".into(),
            url: "https://factory/x".into(),
            sha256: None,
            format: "qcow2".into(),
        };
        let file = file_name(&wanted).unwrap();
        assert_eq!(file, "nocloud-v1-10-butler.butler.mgmt.c-1.o-1.qcow2");
        assert_eq!(
            owner_of(&format!("local:import/{file}")),
            Some(("nocloud-v1-10-butler".to_owned(), owner))
        );
        assert_eq!(owner_of("local:import/talos.butler.qcow2"), None);
        assert!(is_of("local:import/nocloud-v1-10-butler.butler.mgmt.c-1.o-1.raw", &wanted));
        assert!(!is_of("local:import/nocloud-v1-10-butler.butler.mgmt.c-1.o-2.raw", &wanted));
        wanted.format = "raw.xz".into();
        assert_eq!(file_name(&wanted).unwrap_err().reason, "ImageFormat");
    }
}
