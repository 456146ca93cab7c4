//! GET of one object.

use crate::engine::{Call, Engine};
use crate::http::reply::Reply;
use crate::status::{Cause, Details, Status};

impl Engine {
    pub(crate) fn get(&self, call: &Call) -> Result<Reply, Status> {
        self.not_from_the_future(call.params.get("resourceVersion")).map_err(|mut status| {
            // The real server forgets to make this one a bad request.
            if status.code == 400 {
                status = Status::unexplained(status.message.trim_start_matches("invalid resource version: "));
            }
            status
        })?;
        let object = self.store.get(call.collection(), &call.key()).ok_or_else(|| call.not_found())?;
        Ok(self.reply_object(call, object))
    }

    /// A revision that nothing has yet: Kubernetes waits three seconds for it and gives up; here all writes pass through
    /// this process, so waiting could not help.
    pub(crate) fn not_from_the_future(&self, asked: Option<&str>) -> Result<Option<u64>, Status> {
        let Some(text) = asked else { return Ok(None) };
        let revision: u64 = text.parse().map_err(|_| {
            Status::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?;
        let current = self.store.revision();
        if revision > current {
            let message = format!("Timeout: Too large resource version: {revision}, current: {current}");
            let mut status = Status::new(504, "Timeout", message);
            status.details = Some(Box::new(Details {
                causes: vec![Cause {
                    reason: "ResourceVersionTooLarge".into(),
                    message: "Too large resource version".into(),
                    field: String::new(),
                }],
                retry_after_seconds: 1,
                ..Details::default()
            }));
            return Err(status);
        }
        Ok(Some(revision))
    }
}
