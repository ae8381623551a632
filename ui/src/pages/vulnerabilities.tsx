// Looking for a vulnerability by its id.
import { useState } from 'preact/hooks';
import { Title } from '../parts';
import { href, navigate } from '../router';
import { useNamespace } from '../app';

export function VulnerabilitiesPage() {
  const [id, setID] = useState('');
  const namespace = useNamespace();
  const submit = (event: Event) => {
    event.preventDefault();
    navigate(href('/vulnerabilities/{id}', { id: id.trim() }, { namespace }));
  };
  return <>
    <Title text="Vulnerabilities" />
    <form class="filters" onSubmit={submit}><label class="filter">Id or alias <input value={id} required maxLength={128} placeholder="CVE-2024-3094" onInput={(e) => setID(e.currentTarget.value)} /></label>
      <button type="submit" class="primary">Who runs it?</button></form>
  </>;
}
