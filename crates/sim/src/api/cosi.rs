//! `cosi.resource.State`: reading and watching the resources of a node. Nothing can be written.

use super::methods::Role;
use super::resources::{self, Item, Kind};
use super::{Api, Roles};
use crate::journal::stamp;
use butler_talos::api::cosi::resource::state_server::State;
use butler_talos::api::cosi::resource::{
    Event, EventType, GetRequest, GetResponse, ListRequest, ListResponse, Metadata, Resource, Spec,
    WatchRequest, WatchResponse,
};
use jiff::Timestamp;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tonic::codegen::BoxStream;
use tonic::codegen::tokio_stream::{self, wrappers::ReceiverStream};
use tonic::{Extensions, Request, Response, Status, async_trait};

#[async_trait]
impl State for Api {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let kind = known(&request.get_ref().r#type, request.extensions())?;
        let request = request.into_inner();
        let found = self.items(kind).into_iter().find(|item| item.id == request.id);
        let Some(item) = found else {
            return Err(Status::not_found(format!(
                "resource {}({}/{}@undefined) doesn't exist",
                request.r#type, request.namespace, request.id
            )));
        };
        Ok(Response::new(GetResponse { resource: Some(resource(kind, &item, 1)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<BoxStream<ListResponse>>, Status> {
        let kind = known(&request.get_ref().r#type, request.extensions())?;
        let items = self.items(kind);
        let answers: Vec<_> =
            items.iter().map(|item| Ok(ListResponse { resource: Some(resource(kind, item, 1)) })).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
    }

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<BoxStream<WatchResponse>>, Status> {
        let kind = known(&request.get_ref().r#type, request.extensions())?;
        let request = request.into_inner();
        let api = self.clone();
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            tokio::select! {
                () = api.follow(kind, &request, &sender) => {}
                () = sender.closed() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// The kind, if it is there and the caller may see it. A caller in maintenance mode has no roles.
fn known(resource_type: &str, extensions: &Extensions) -> Result<&'static Kind, Status> {
    let Some(kind) = resources::kind(resource_type) else {
        return Err(Status::unimplemented(format!("simulated node: {resource_type} is not simulated")));
    };
    let admin = extensions.get::<Roles>().is_some_and(|Roles(roles)| Role::Admin.allows(roles));
    if kind.sensitive && !admin {
        return Err(Status::permission_denied("not authorized"));
    }
    Ok(kind)
}

impl Api {
    fn items(&self, kind: &Kind) -> Vec<Item> {
        (kind.make)(&self.node, &self.node.machine())
    }

    /// Tells what is there now, and then what becomes different, until the reader goes.
    async fn follow(
        &self,
        kind: &'static Kind,
        request: &WatchRequest,
        sender: &mpsc::Sender<Result<WatchResponse, Status>>,
    ) {
        let options = request.options.clone().unwrap_or_default();
        // A watch of one resource always starts with its state; a watch of a kind only when asked to.
        let tell_first = request.id.is_some() || options.bootstrap_contents;
        let mut changed = self.node.journal.watch();
        let mut machine = self.node.watch();
        let mut seen: BTreeMap<String, (u64, Item)> = BTreeMap::new();
        let mut first = true;
        loop {
            let now = self.items(kind).into_iter();
            let now: Vec<Item> =
                now.filter(|item| request.id.as_ref().is_none_or(|id| *id == item.id)).collect();
            let mut events = difference(kind, &mut seen, now);
            if first {
                if !tell_first {
                    events.clear();
                }
                if let Some(id) = request.id.as_ref().filter(|_| events.is_empty()) {
                    events.push(absent(kind, id));
                }
                if request.id.is_none() && options.bootstrap_contents {
                    events.push(event(EventType::Bootstrapped, None));
                }
                first = false;
            }
            for event in events {
                if sender.send(Ok(WatchResponse { event: vec![event] })).await.is_err() {
                    return;
                }
            }
            let ended = tokio::select! {
                outcome = changed.changed() => outcome.is_err(),
                outcome = machine.changed() => outcome.is_err(),
            };
            if ended {
                return;
            }
        }
    }
}

/// Brings `seen` up to date and gives the events that lead there.
fn difference(kind: &Kind, seen: &mut BTreeMap<String, (u64, Item)>, now: Vec<Item>) -> Vec<Event> {
    let mut events = Vec::new();
    let gone: Vec<String> =
        seen.keys().filter(|id| !now.iter().any(|item| item.id == **id)).cloned().collect();
    for id in gone {
        if let Some((version, item)) = seen.remove(&id) {
            events.push(event(EventType::Destroyed, Some(resource(kind, &item, version))));
        }
    }
    for item in now {
        let (what, version) = match seen.get(&item.id) {
            None => (EventType::Created, 1),
            Some((version, old)) if old.spec != item.spec => (EventType::Updated, version + 1),
            Some(_) => continue,
        };
        events.push(event(what, Some(resource(kind, &item, version))));
        seen.insert(item.id.clone(), (version, item));
    }
    events
}

/// The state of a resource that is not there, as a watch of it begins.
fn absent(kind: &Kind, id: &str) -> Event {
    let item = Item { id: id.to_string(), spec: serde_json::Value::Null, proto: Vec::new(), text: None };
    let mut tombstone = resource(kind, &item, 0);
    if let Some(metadata) = &mut tombstone.metadata {
        metadata.version = "undefined".to_string();
        metadata.phase = "tearingDown".to_string();
    }
    event(EventType::Destroyed, Some(tombstone))
}

fn event(event_type: EventType, resource: Option<Resource>) -> Event {
    Event { resource, event_type: event_type.into(), ..Event::default() }
}

fn resource(kind: &Kind, item: &Item, version: u64) -> Resource {
    let now = Some(stamp(Timestamp::now()));
    let metadata = Metadata {
        namespace: kind.namespace.to_string(),
        r#type: kind.resource_type.to_string(),
        id: item.id.clone(),
        version: version.to_string(),
        owner: "SIMULATED".to_string(),
        phase: "running".to_string(),
        created: now,
        updated: now,
        ..Metadata::default()
    };
    let yaml_spec =
        item.text.clone().unwrap_or_else(|| serde_saphyr::to_string(&item.spec).unwrap_or_default());
    Resource { metadata: Some(metadata), spec: Some(Spec { proto_spec: item.proto.clone(), yaml_spec }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(id: &str, spec: serde_json::Value) -> Item {
        Item { id: id.to_string(), spec, proto: Vec::new(), text: None }
    }

    #[test]
    fn a_watch_tells_what_changed_and_nothing_twice() {
        let kind = &resources::KINDS[0];
        let mut seen = BTreeMap::new();
        let types = |events: Vec<Event>| -> Vec<EventType> {
            events.iter().map(|event| event.event_type()).collect()
        };
        let first = difference(kind, &mut seen, vec![item("a", json!(1)), item("b", json!(1))]);
        assert_eq!(types(first), [EventType::Created, EventType::Created]);
        let second = difference(kind, &mut seen, vec![item("a", json!(1)), item("b", json!(2))]);
        assert_eq!(types(second), [EventType::Updated]);
        let third = difference(kind, &mut seen, vec![item("b", json!(2))]);
        assert_eq!(types(third), [EventType::Destroyed]);
    }
}
