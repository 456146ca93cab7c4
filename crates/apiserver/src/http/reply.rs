//! Answers, and the bodies they are sent as.

use super::media::{Accepted, Encoding};
use crate::status::Status;
use crate::store::Object;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The body of an answer. It never fails: what can go wrong has gone wrong before it is made.
pub struct Body(Inner);

enum Inner {
    Whole(Option<Bytes>),
    List(ListBody),
    Stream(Frames),
}

/// A list that is put together while it is sent, so that a large one is never in memory twice.
struct ListBody {
    head: Bytes,
    /// Items show no apiVersion and kind of their own: lists of built-in kinds.
    bare: bool,
    objects: Vec<Arc<Object>>,
    next: usize,
    done: bool,
}

/// Bytes that come one by one, made when they are asked for.
pub(crate) struct Frames(Option<Pin<Box<dyn Source>>>);

/// What [`Frames`] holds: some state between two frames, or the future of the next one.
trait Source: Send {
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

struct Unfold<S, F, Fut> {
    state: Option<S>,
    step: F,
    running: Option<Pin<Box<Fut>>>,
}

impl Frames {
    pub(crate) fn once(frame: Bytes) -> Self {
        Self::from(Some(frame), |mut left| async move {
            let frame = left.take();
            (left, frame)
        })
    }

    /// Calls `step` for each frame; `None` is the end.
    pub(crate) fn from<S, F, Fut>(state: S, step: F) -> Self
    where
        S: Send + Unpin + 'static,
        F: FnMut(S) -> Fut + Send + Unpin + 'static,
        Fut: Future<Output = (S, Option<Bytes>)> + Send + 'static,
    {
        Self(Some(Box::pin(Unfold { state: Some(state), step, running: None })))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(source) = &mut self.0 else { return Poll::Ready(None) };
        let next = source.as_mut().poll_next(cx);
        if let Poll::Ready(None) = next {
            self.0 = None;
        }
        next
    }
}

impl<S, F, Fut> Source for Unfold<S, F, Fut>
where
    S: Send + Unpin,
    F: FnMut(S) -> Fut + Send + Unpin,
    Fut: Future<Output = (S, Option<Bytes>)> + Send,
{
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if let Some(state) = this.state.take() {
            this.running = Some(Box::pin((this.step)(state)));
        }
        let Some(running) = &mut this.running else { return Poll::Ready(None) };
        match running.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((state, frame)) => {
                this.state = Some(state);
                this.running = None;
                Poll::Ready(frame)
            }
        }
    }
}

/// Large enough for few system calls, small enough to stay in cache.
const FRAME: usize = 128 << 10;

/// An answer before it is written down.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content: Content,
    /// Sent as `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// Where plain JSON or text would not say it.
    pub(crate) content_type: Option<&'static str>,
    pub(crate) etag: Option<String>,
    /// The address holds the content's hash: it may be kept for ever.
    pub(crate) forever: bool,
    pub(crate) location: Option<String>,
}

pub(crate) enum Content {
    Object(Arc<Object>),
    Value(Value),
    /// The head ends right behind `"items":[`.
    List {
        head: Bytes,
        bare: bool,
        objects: Vec<Arc<Object>>,
    },
    /// A document that is JSON already.
    Json(Bytes),
    Text(String),
    Stream(Frames),
}

impl Reply {
    pub(crate) fn ok(content: Content) -> Self {
        Self {
            code: 200,
            content,
            warnings: Vec::new(),
            content_type: None,
            etag: None,
            forever: false,
            location: None,
        }
    }

    pub(crate) fn text(text: String) -> Self {
        Self::ok(Content::Text(text))
    }

    pub(crate) fn value(value: Value) -> Self {
        Self::ok(Content::Value(value))
    }

    /// A document that clients keep and ask about by its ETag.
    pub(crate) fn document(bytes: Bytes) -> Self {
        let etag = crate::discovery::etag(&bytes);
        Self { etag: Some(etag), ..Self::ok(Content::Json(bytes)) }
    }

    /// What Kubernetes says about paths that none of its parts knows.
    pub(crate) fn no_such_page() -> Self {
        Self::text("404 page not found\n".into()).with_code(404)
    }

    pub(crate) fn moved(location: String) -> Self {
        Self { location: Some(location), ..Self::ok(Content::Json(Bytes::new())) }.with_code(301)
    }

    pub(crate) fn with_code(mut self, code: u16) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn into_response(self, accepted: Accepted) -> http::Response<Body> {
        let mut content_type = "application/json";
        let inner = match self.content {
            Content::Object(object) => Inner::Whole(Some(object.json.clone())),
            Content::Value(value) => Inner::Whole(Some(Bytes::from(value.to_string()))),
            Content::Json(bytes) => Inner::Whole(Some(bytes)),
            Content::List { head, bare, objects } => {
                Inner::List(ListBody { head, bare, objects, next: 0, done: false })
            }
            Content::Text(text) => {
                content_type = "text/plain; charset=utf-8";
                Inner::Whole(Some(Bytes::from(text)))
            }
            Content::Stream(stream) => Inner::Stream(stream),
        };
        let mut inner = inner;
        content_type = self.content_type.unwrap_or(content_type);
        if accepted.encoding == Encoding::Yaml && !matches!(inner, Inner::Stream(_)) {
            content_type = "application/yaml";
            inner = Inner::Whole(Some(to_yaml(inner)));
        }
        let mut response = http::Response::new(Body(inner));
        *response.status_mut() = http::StatusCode::from_u16(self.code).unwrap_or_default();
        let headers = response.headers_mut();
        // Caches copy the headers of a 304 over those they have, so it says nothing about the content.
        if self.code != 304 {
            headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        }
        let cache = if self.forever { "public, immutable" } else { "no-cache, private" };
        headers.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static(cache));
        if self.etag.is_some() {
            headers.insert(http::header::VARY, http::HeaderValue::from_static("Accept"));
        }
        for (name, value) in [(http::header::ETAG, &self.etag), (http::header::LOCATION, &self.location)] {
            if let Some(value) = value.as_ref().and_then(|v| http::HeaderValue::from_str(v).ok()) {
                headers.insert(name, value);
            }
        }
        for warning in &self.warnings {
            let text: String = warning.chars().filter(|c| !c.is_control()).collect();
            let line = format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            if let Ok(value) = http::HeaderValue::from_str(&line) {
                headers.append(http::header::WARNING, value);
            }
        }
        response
    }
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        Self::value(status.to_json()).with_code(status.code)
    }
}

fn to_yaml(inner: Inner) -> Bytes {
    let json = match inner {
        Inner::Whole(bytes) => bytes.unwrap_or_default(),
        Inner::List(mut list) => {
            let mut all = Vec::new();
            while let Some(frame) = list.next_frame() {
                all.extend_from_slice(&frame);
            }
            Bytes::from(all)
        }
        Inner::Stream(_) => Bytes::new(),
    };
    let value: Value = serde_json::from_slice(&json).unwrap_or_default();
    Bytes::from(serde_saphyr::to_string(&value).unwrap_or_default())
}

impl ListBody {
    fn next_frame(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = Vec::with_capacity(FRAME + 4096);
        if self.next == 0 {
            out.extend_from_slice(&self.head);
        }
        while let Some(object) = self.objects.get(self.next) {
            if self.next > 0 {
                out.push(b',');
            }
            if self.bare {
                out.push(b'{');
                out.extend_from_slice(object.body());
            } else {
                out.extend_from_slice(&object.json);
            }
            self.next += 1;
            if out.len() >= FRAME {
                return Some(Bytes::from(out));
            }
        }
        out.extend_from_slice(b"]}\n");
        self.done = true;
        Some(Bytes::from(out))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.0 {
            Inner::Whole(bytes) => bytes.take(),
            Inner::List(list) => list.next_frame(),
            Inner::Stream(frames) => match frames.poll_next(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(bytes) => bytes.is_none(),
            Inner::List(list) => list.done,
            Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            _ => SizeHint::default(),
        }
    }
}
