// The session of the signed-in user.
import { signal } from "@preact/signals";
import { ApiError, get, request, whenNoToken } from "./client";
import { connect, disconnect } from "./live";
import type { Me } from "./types";

export type Session =
  | { is: "starting" }
  | { is: "out"; reason?: string }
  | { is: "unreachable" }
  | { is: "in"; me: Me };

export const session = signal<Session>({ is: "starting" });

/** Fetches the user's identity, which may need no token. */
export async function start(): Promise<void> {
  try {
    const me = await get<Me>("/me");
    session.value = { is: "in", me };
    connect();
  } catch (error) {
    const isOut = error instanceof ApiError && (error.status === 401 || error.status === 403);
    session.value = isOut ? { is: "out" } : { is: "unreachable" };
    if (!isOut) setTimeout(() => void start(), AGAIN_MS);
  }
}

/** Exchanges a token for a session cookie that scripts cannot read. */
export async function signIn(token: string): Promise<void> {
  await request("POST", "/session", { token });
  await start();
}

export async function signOut(): Promise<void> {
  disconnect();
  await request("DELETE", "/session").catch(() => undefined);
  session.value = { is: "out" };
}

whenNoToken(() => {
  if (session.value.is !== "in") return;
  disconnect();
  session.value = { is: "out", reason: "Your session has ended." };
});

/** Whether the session ended without the user signing out. */
export const hasEnded = (): boolean =>
  session.value.is === "out" && session.value.reason !== undefined;

/** Whether the user may change policies. */
export const mayChange = (): boolean =>
  session.value.is === "in" && session.value.me.role !== "viewer";

export const isAdmin = (): boolean =>
  session.value.is === "in" && session.value.me.role === "admin";

const AGAIN_MS = 1500;
