//! Answers that go on and on end when whoever reads them may not any more.

use std::pin::Pin;
use std::time::Duration;

use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use disbatch_core::accounts::UserName;
use disbatch_core::store::StoreError;
use futures::StreamExt;
use futures::stream;

use super::{Via, Who};
use crate::state::State;

/// How often it is asked.
const LOOK: Duration = Duration::from_secs(30);

/// The answer, which is cut off when whoever reads it has lost a right, or the session or token has ended. One whose length is known comes to its end.
pub fn limit(response: ServiceResponse<BoxBody>, who: &Who, state: &State) -> ServiceResponse<BoxBody> {
    if response.response().body().size() != BodySize::Stream {
        return response;
    }
    let over = is_over(who.clone(), state.clone());
    response.map_body(|_, mut body| {
        let chunks = stream::poll_fn(move |context| Pin::new(&mut body).poll_next(context));
        BoxBody::new(BodyStream::new(chunks.take_until(over)))
    })
}

/// Waits until they may not read any more.
async fn is_over(who: Who, state: State) {
    loop {
        tokio::time::sleep(LOOK).await;
        // Not to know is no reason to end anything: without a database there is nothing to be read either.
        if matches!(may_still(&who, &state).await, Ok(false)) {
            return;
        }
    }
}

/// Whether they are still let in, with the same rights. Whoever has others asks again, and is let through or not.
async fn may_still(who: &Who, state: &State) -> Result<bool, StoreError> {
    let store = &state.store;
    let name = || who.name.as_deref().and_then(|name| name.parse::<UserName>().ok());
    let user = match (&who.via, name()) {
        (Via::OpenDoor, _) => return state.access.is_open(store, false).await,
        (Via::Session(key), _) if !store.is_session_alive(key).await? => None,
        (Via::Token { text, .. }, _) => store.token_bearer(text, &who.from).await?.map(|bearer| bearer.user),
        (_, Some(name)) => store.find_user(&name).await?,
        (_, None) => None,
    };
    Ok(user.is_some_and(|user| user.rights == who.rights))
}
