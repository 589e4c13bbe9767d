//! REST over real connections, each answer compared with the OpenAPI document.

mod access;
mod answers;
mod client;
mod live;
mod store;
mod tls;
