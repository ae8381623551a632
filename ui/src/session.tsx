// Signing in and out, and who is signed in.
import { createContext } from 'preact';
import { useContext, useState } from 'preact/hooks';
import type { Session } from './api.gen';
import { ApiError, post, remove } from './api';
import { Command, Failure } from './parts';
import { usePlace } from './router';

export const SessionContext = createContext<Session>({ user: '', cookie: false, allNamespaces: false, namespaces: [], version: '', eventID: '' });

export const useSession = () => useContext(SessionContext);

// useNamespace returns the namespace that the user has chosen, or the only one there is; otherwise undefined.
export function useNamespace(): string | undefined {
  const { namespaces } = useSession();
  const { parameters, query } = usePlace();
  return parameters.namespace ?? query.get('namespace') ?? (namespaces.length === 1 ? namespaces[0] : undefined);
}

// takeCode returns the code that `kubectl scanner ui` has put into the address, and removes it from there and from the browser's history.
export function takeCode(): string | undefined {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(history.state, '', location.pathname + location.search);
  return code;
}

// SignIn asks for a token. ended says that there was a session before, and refused why a code did not sign in.
export function SignIn({ ended, refused, onSession }: { ended: boolean; refused: ApiError | undefined; onSession: (session: Session) => void }) {
  const [token, setToken] = useState('');
  const [error, setError] = useState(refused);
  const [busy, setBusy] = useState(false);
  const namespace = new URLSearchParams(location.search).get('namespace') ?? /\/namespaces\/([^/]+)/.exec(location.pathname)?.[1] ?? 'default';
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const session = await post('/api/v1/session', { token: token.trim() });
      setToken('');
      onSession(session);
    } catch (failure) {
      if (failure instanceof ApiError) setError(failure);
      setBusy(false);
    }
  };
  return <main class="signin">
    <h1>{ended ? 'Your session has ended' : 'Sign in'}</h1>
    {!isSecureContext && <div class="notice bad" role="alert"><p><b>This page came over plain HTTP.</b> Browsers keep the cookie of a session only with HTTPS. Open the address with https://.</p></div>}
    <p>Paste a Kubernetes token. You see what this token may list: scanners and imagescans, in its namespaces.</p>
    {error && <Failure error={error} />}
    <form onSubmit={submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck={false} required autofocus value={token} onInput={(e) => setToken(e.currentTarget.value)} />
      <button type="submit" class="primary" disabled={busy || token.trim() === ''}>{busy ? 'Signing in…' : 'Sign in'}</button>
    </form>
    <h2>Where to get a token</h2>
    <p>With the kubectl plugin, this opens the web UI as yourself, without a token to paste:</p>
    <Command text={`kubectl scanner ui --namespace ${namespace}`} />
    <p>For a ServiceAccount that may view the namespace, for at most as long as the cluster allows:</p>
    <Command text={`kubectl create token viewer --namespace ${namespace} --duration 8h`} />
    <p>For yourself, if you sign in to the cluster with OpenID Connect:</p>
    <Command text="kubectl oidc-login get-token --oidc-issuer-url=… --oidc-client-id=… | jq -r .status.token" />
    <p class="mute">The token is kept encrypted in a cookie that scripts cannot read. The API server reviews it with each request. The session ends with the token.</p>
  </main>;
}

export async function signOut(): Promise<void> {
  await remove('/api/v1/session', {});
  location.reload();
}
