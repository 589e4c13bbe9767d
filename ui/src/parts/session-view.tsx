// Sign-in with a token, for controllers that require one.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { signIn } from "../api/session";

export function SignIn({ reason }: { reason?: string }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(reason);
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  // What had the focus is gone when a session ends.
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token.trim());
    } catch (failure) {
      setError(failure instanceof ApiError ? words(failure) : String(failure));
      setBusy(false);
    }
  };
  return (
    <main class="sign-in" id="main">
      <h1>tapswitch</h1>
      <p>This controller requires a token. Paste the one that you got from its operator.</p>
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input
          id="token"
          ref={field}
          type="password"
          autocomplete="current-password"
          required
          value={token}
          aria-describedby={error ? "token-error" : undefined}
          aria-invalid={Boolean(error)}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
        {error && (
          <p class="problem" id="token-error" role="alert">
            {error}
          </p>
        )}
        <button type="submit" class="primary" disabled={isBusy || token.trim() === ""}>
          Sign in
        </button>
      </form>
      <p class="muted">
        Create a token on the controller's machine with{" "}
        <code>tapswitch token new NAME --role operator</code>.
      </p>
    </main>
  );
}

const words = (error: ApiError): string =>
  error.status === 401 ? "The token is not valid." : error.message;
