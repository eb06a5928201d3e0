//! The script on one connection and nothing else: no deadline, no batching, no second attempt. For
//! tests of the script, which drive its clock, and for measuring it.

use std::sync::{Mutex, PoisonError};

use redis::{Connection, ConnectionLike, RedisError, Value};
use tollgate::store::Answers;
use tollgate::{ChargeSet, Decision, Prefix, Store, StoreError, StoreErrorKind, Timestamp};

use crate::answer::{Verdicts, decision, split};
use crate::question::Question;
use crate::script::{Form, ScriptClock, encode};

/// Sets to be decided in one call of the script.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'b, 's> {
    /// When, or `None` for the server's own clock.
    pub at: Option<Timestamp>,
    /// The sets.
    pub sets: &'b [ChargeSet<'s>],
}

/// A connection to a server that knows the script.
pub struct Bare {
    connection: Mutex<Connection>,
    prefix: Prefix,
    at: Mutex<Option<Timestamp>>,
}

impl Bare {
    /// Loads the script and keeps the connection. The clock is the server's until one is set.
    pub fn new(mut connection: Connection, prefix: Prefix) -> Result<Self, RedisError> {
        connection
            .req_packed_command(&encode(Form::Text, ScriptClock::Server, &[]))?
            .extract_error()?;
        Ok(Self { connection: Mutex::new(connection), prefix, at: Mutex::new(None) })
    }

    /// Has everything asked through [`Store`] decided at this instant from now on.
    pub fn set_clock(&self, at: Option<Timestamp>) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Decides batches one after the other, all sent at once.
    pub fn decide_batches(
        &self,
        batches: &[Batch<'_, '_>],
    ) -> Result<Vec<Vec<Decision>>, StoreError> {
        let mut pipeline = Vec::new();
        let mut asked = Vec::with_capacity(batches.len());
        for Batch { at, sets } in batches {
            let now = at.unwrap_or(Timestamp::EPOCH);
            let questions = sets.iter().map(|set| Question::new(&self.prefix, set, now));
            let questions: Vec<Question> = questions.collect();
            let clock = at.map_or(ScriptClock::Server, ScriptClock::Given);
            pipeline.extend(encode(Form::Sha, clock, &questions));
            asked.push(questions);
        }
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let replies = connection
            .req_packed_commands(&pipeline, 0, batches.len())
            .map_err(|error| StoreError::caused_by(StoreErrorKind::Unavailable, error))?;
        let replies = replies.into_iter().zip(asked).zip(batches);
        replies
            .map(|((reply, questions), batch)| {
                let Verdicts::Decided(at, answers) = split(&spelled(&reply)?, &questions)? else {
                    let what = "calendars need an instant that is given";
                    return Err(StoreError::caused_by(StoreErrorKind::Protocol, what));
                };
                let answers = batch.sets.iter().zip(answers);
                answers.map(|(set, answer)| decision(set, at, &answer)).collect()
            })
            .collect()
    }
}

impl Store for Bare {
    /// Blocks: there is nothing to wait for but this one answer.
    async fn decide(&self, sets: &[ChargeSet<'_>]) -> Answers {
        let at = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        match self.decide_batches(&[Batch { at, sets }]) {
            Ok(mut decisions) => decisions.remove(0).into_iter().map(Ok).collect(),
            Err(error) => {
                let kind = error.kind();
                let mut answers: Answers =
                    sets.iter().map(|_| Err(StoreError::new(kind))).collect();
                if let Some(first) = answers.first_mut() {
                    *first = Err(error);
                }
                answers
            }
        }
    }
}

/// A reply as the server wrote it. The client here has taken it apart; the store's own does not.
fn spelled(value: &Value) -> Result<Vec<u8>, StoreError> {
    Ok(match value {
        Value::Nil => b"$-1\r\n".to_vec(),
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::BulkString(bytes) => {
            [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        }
        Value::Array(values) => {
            let values: Vec<Vec<u8>> = values.iter().map(spelled).collect::<Result<_, _>>()?;
            [format!("*{}\r\n", values.len()).into_bytes(), values.concat()].concat()
        }
        other => {
            return Err(StoreError::caused_by(StoreErrorKind::Protocol, format!("{other:?}")));
        }
    })
}
