//! Calls that only look.

use super::handle::{Asked, Healths, shown_collection};
use super::list::{self, Filter};
use super::machine_types;
use super::operations::tell;
use super::request::{Outcome, Refusal};
use super::state::{Fields, State, collection_of, link, name_of, singular};
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl State {
    pub(super) fn read(&self, asked: &Asked<'_>, healths: Healths<'_>) -> Outcome {
        let path = asked.path();
        match (asked.request.collection(), asked.request.verb()) {
            ("projects", _) => Ok(json!({
                "kind": "compute#project", "name": self.project, "quotas": self.quotas_of(None),
                "selfLink": link(&format!("projects/{}", self.project)),
                "defaultServiceAccount": format!("{}@developer.gserviceaccount.com", self.project),
            })),
            ("regions", "get") => self.region(&asked.request.path["region"]),
            ("regions", _) => self.listing(
                "region",
                self.regions.keys().map(|region| self.region(region)).collect::<Result<_, _>>()?,
                asked,
            ),
            ("zones", "get") => self.zone(&asked.request.path["zone"]),
            ("zones", _) => {
                let all =
                    self.regions.values().flatten().map(|zone| self.zone(zone)).collect::<Result<_, _>>()?;
                self.listing("zone", all, asked)
            }
            ("machineTypes", "get") => machine_type(&path),
            ("machineTypes", _) => {
                let usual = [
                    "e2-standard-2",
                    "e2-standard-4",
                    "e2-standard-8",
                    "n2-standard-2",
                    "n2-standard-4",
                    "n2-standard-8",
                ];
                let all = usual
                    .iter()
                    .map(|name| machine_type(&format!("{path}/{name}")))
                    .collect::<Result<_, _>>()?;
                self.listing("machineType", all, asked)
            }
            ("images", "getFromFamily") => {
                let (project, family) = (&asked.request.path["project"], &asked.request.path["family"]);
                self.newest(project, family).and_then(|path| self.shown(&path))
            }
            ("zoneOperations" | "regionOperations" | "globalOperations", "list") => {
                let all = self.operations.values().filter(|operation| operation.place == asked.place);
                self.listing("operation", all.map(|operation| tell(operation, asked.now)).collect(), asked)
            }
            ("zoneOperations" | "regionOperations" | "globalOperations", _) => {
                self.operation(&asked.place, name_of(&path)).map(|operation| tell(operation, asked.now))
            }
            ("instanceGroups", "listInstances") => self.members(asked, &path),
            (_, "getHealth") => self.health_of(&path, &asked.body, healths),
            (_, "get") => self.shown(&path),
            (_, "list") => self.listed(asked, &path),
            (_, "aggregatedList") => self.aggregated(asked),
            (_, verb) => Err(Refusal::not_simulated(verb)),
        }
    }

    /// A resource as the API shows it, with what follows from others.
    fn shown(&self, path: &str) -> Outcome {
        let doc = self.doc(path).ok_or_else(|| Refusal::not_found(path))?;
        let mut told = Value::Object(doc.fields.clone());
        let users = || -> Vec<String> { self.users_of(path).iter().map(|user| link(user)).collect() };
        match collection_of(path) {
            "addresses" => {
                let users = users();
                told["status"] = if users.is_empty() { "RESERVED" } else { "IN_USE" }.into();
                if !users.is_empty() {
                    told["users"] = json!(users);
                }
            }
            "disks" => told["users"] = json!(users()),
            "instanceGroups" => told["size"] = doc.members.len().into(),
            _ => {}
        }
        Ok(told)
    }

    fn region(&self, region: &str) -> Outcome {
        let path = format!("projects/{}/regions/{region}", self.project);
        let zones = self.regions.get(region).ok_or_else(|| Refusal::not_found(&path))?;
        let zones: Vec<String> =
            zones.iter().map(|zone| link(&format!("projects/{}/zones/{zone}", self.project))).collect();
        Ok(json!({
            "kind": "compute#region", "name": region, "status": "UP", "zones": zones, "selfLink": link(&path),
            "quotas": self.quotas_of(Some(region)),
        }))
    }

    fn zone(&self, zone: &str) -> Outcome {
        let path = format!("projects/{}/zones/{zone}", self.project);
        let region = self.region_of_zone(zone).ok_or_else(|| Refusal::not_found(&path))?;
        Ok(json!({
            "kind": "compute#zone", "name": zone, "status": "UP", "selfLink": link(&path),
            "region": link(&format!("projects/{}/regions/{region}", self.project)),
        }))
    }

    fn listing(&self, kind: &str, all: Vec<Value>, asked: &Asked<'_>) -> Outcome {
        let filter = Filter::parse(asked.query.get("filter").map(String::as_str).unwrap_or_default())?;
        let fitting = all.into_iter().filter(|resource| filter.fits(resource)).collect();
        let (items, next) = list::page(fitting, asked.query)?;
        let mut told = json!({ "kind": format!("compute#{kind}List"), "id": asked.path(), "selfLink": link(&asked.path()) });
        // An empty list is left out, as everywhere in Google's JSON.
        if !items.is_empty() {
            told["items"] = items.into();
        }
        if let Some(next) = next {
            told["nextPageToken"] = next.into();
        }
        Ok(told)
    }

    fn listed(&self, asked: &Asked<'_>, collection: &str) -> Outcome {
        let here = |path: &&String| path.rsplit_once('/').is_some_and(|(parent, _)| parent == collection);
        let all = self
            .docs
            .iter()
            .filter(|(_, doc)| doc.listed_from <= asked.now)
            .map(|(path, _)| path)
            .filter(here);
        let all = all.map(|path| self.shown(path)).collect::<Result<_, _>>()?;
        self.listing(singular(collection_of(&format!("{collection}/x"))), all, asked)
    }

    /// Everything of one kind by place; places without any have a warning instead.
    fn aggregated(&self, asked: &Asked<'_>) -> Outcome {
        let collection = shown_collection(asked.request.collection());
        let filter = Filter::parse(asked.query.get("filter").map(String::as_str).unwrap_or_default())?;
        let mut places: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (region, zones) in &self.regions {
            places.insert(format!("regions/{region}"), Vec::new());
            places.extend(zones.iter().map(|zone| (format!("zones/{zone}"), Vec::new())));
        }
        for (path, doc) in self.all(collection).filter(|(_, doc)| doc.listed_from <= asked.now) {
            let told = self.shown(path)?;
            let place = path.split('/').skip(2).take(2).collect::<Vec<_>>().join("/");
            if filter.fits(&told) && doc.listed_from <= asked.now {
                places.entry(place).or_default().push(told);
            }
        }
        let items: Fields = places
            .into_iter()
            .map(|(place, all)| {
                let empty = json!({ "warning": { "code": "NO_RESULTS_ON_PAGE", "message": format!("There are no results for scope '{place}' on this page.") } });
                let told = if all.is_empty() { empty } else { json!({ collection: all }) };
                (place, told)
            })
            .collect();
        Ok(json!({ "kind": format!("compute#{}AggregatedList", singular(collection)), "items": items }))
    }

    fn members(&self, asked: &Asked<'_>, path: &str) -> Outcome {
        let doc = self.doc(path).ok_or_else(|| Refusal::not_found(path))?;
        let all = doc
            .members
            .iter()
            .map(|one| json!({ "instance": link(one), "status": self.text(one, "status") }))
            .collect();
        self.listing("instanceGroupsListInstances", all, asked)
    }
}

fn machine_type(path: &str) -> Outcome {
    let (cpus, memory) = machine_types::parse(name_of(path)).map_err(|_| Refusal::not_found(path))?;
    Ok(json!({
        "kind": "compute#machineType", "name": name_of(path), "guestCpus": cpus, "memoryMb": memory, "selfLink": link(path),
        "zone": path.split('/').nth(3),
    }))
}
