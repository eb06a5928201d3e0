//! The body of an answer that may have been shared.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::time::sleep;

use crate::body::AnswerBody;

/// A body that was read ahead, in part or whole: what was read, and what comes after it.
pub struct FlightBody<B: Body> {
    // Read ahead; goes first.
    frames: VecDeque<Frame<Bytes>>,
    // What the reading ended with, if it ended badly.
    error: Option<B::Error>,
    // Not read yet; `None` where everything was. On the heap, so that it can be moved while it is
    // being read.
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body<Data = Bytes>> FlightBody<B> {
    /// A body read to its end.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let frame = (!bytes.is_empty()).then(|| Frame::data(bytes));
        Self { frames: frame.into_iter().collect(), error: None, rest: None }
    }

    /// A body nothing of which was read.
    pub(super) fn unread(body: B) -> Self {
        Self { frames: VecDeque::new(), error: None, rest: Some(Box::pin(body)) }
    }
}

// It holds nothing that is pinned where it lies.
impl<B: Body> Unpin for FlightBody<B> {}

impl<B: Body<Data = Bytes>> Body for FlightBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        let frame = ready!(rest.as_mut().poll_frame(context));
        if frame.is_none() {
            self.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let rest_is_over = self.rest.as_ref().is_none_or(|rest| rest.is_end_stream());
        self.frames.is_empty() && self.error.is_none() && rest_is_over
    }

    fn size_hint(&self) -> SizeHint {
        let data = self.frames.iter().filter_map(Frame::data_ref);
        let read = data.map(|data| data.len() as u64).sum::<u64>();
        let rest = self.rest.as_ref();
        let rest = rest.map_or_else(|| SizeHint::with_exact(0), |rest| rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let (Some(upper), None) = (rest.upper(), &self.error) {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

impl<B: Body<Data = Bytes>> AnswerBody for FlightBody<B> {
    fn of_refusal(text: Bytes) -> Self {
        Self::whole(text)
    }
}

impl<B: Body> fmt::Debug for FlightBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.frames.len();
        f.debug_struct("FlightBody").field("frames", &read).finish_non_exhaustive()
    }
}

/// How reading ahead ended.
pub(super) enum Read<B: Body> {
    /// With the end.
    Whole(Bytes),
    /// Before it: too long in bytes or in time, broken, or with trailers.
    Partly(FlightBody<B>),
}

/// Reads a body up to so many bytes, and for so long.
pub(super) async fn read<B: Body<Data = Bytes>>(
    body: B,
    most: usize,
    longest: Duration,
) -> Read<B> {
    let mut body = Box::pin(body);
    let mut over = pin!(sleep(longest));
    let mut frames = VecDeque::new();
    let mut length = 0;
    loop {
        let next = poll_fn(|context| match body.as_mut().poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Next::Frame(frame)),
            Poll::Pending => over.as_mut().poll(context).map(|()| Next::Over),
        });
        let (more, error) = match next.await {
            Next::Frame(Some(Ok(frame))) => {
                let more = frame.data_ref().map(|data| data.len());
                frames.push_back(frame);
                (more, None)
            }
            Next::Frame(Some(Err(error))) => (None, Some(error)),
            Next::Frame(None) => return Read::Whole(joined(frames, length)),
            Next::Over => (None, None),
        };
        length += more.unwrap_or(0);
        if more.is_none() || length > most {
            let rest = error.is_none().then_some(body);
            return Read::Partly(FlightBody { frames, error, rest });
        }
    }
}

/// What comes next of a body: a frame, its end, or the end of patience.
enum Next<E> {
    Frame(Option<Result<Frame<Bytes>, E>>),
    Over,
}

/// The data of all frames in one piece.
fn joined(mut frames: VecDeque<Frame<Bytes>>, length: usize) -> Bytes {
    let mut data = frames.drain(..).filter_map(|frame| frame.into_data().ok());
    let first = data.next().unwrap_or_default();
    if first.len() == length {
        return first;
    }
    let mut joined = BytesMut::with_capacity(length);
    joined.extend_from_slice(&first);
    data.for_each(|data| joined.extend_from_slice(&data));
    joined.freeze()
}
