//! REST over real connections; each response is validated against the OpenAPI document.

mod access;
mod answers;
mod awaited;
mod changes;
mod client;
mod details;
mod hostile;
mod live;
mod packets;
mod places;
mod store;
mod tls;

pub(crate) use client::exchange;
