// One Scanner or ClusterScanner: its state, and the messages that it sent.
import { useGet } from '../api';
import type { Message } from '../api.gen';
import { count } from '../format';
import { Details, Pages, Table, TextFilter, Time, Title, View } from '../parts';
import { href, usePlace } from '../router';
import { Slack } from '../slack';
import { ScannerFacts } from './coverage';

export function ScannerPage() {
  const { parameters, query } = usePlace();
  const { namespace, name = '' } = parameters;
  const page = { ...(query.get('receiver') && { receiver: query.get('receiver') ?? '' }), ...(query.get('continue') && { continue: query.get('continue') ?? '' }), limit: 20 };
  const own = useGet(namespace ? '/api/v1/namespaces/{namespace}/scanners/{name}' : undefined, { namespace: namespace ?? '', name }, {});
  const cluster = useGet(namespace ? undefined : '/api/v1/clusterscanners/{name}', { name }, {});
  const ownMessages = useGet(namespace ? '/api/v1/namespaces/{namespace}/scanners/{name}/messages' : undefined, { namespace: namespace ?? '', name }, page);
  const clusterMessages = useGet(namespace ? undefined : '/api/v1/clusterscanners/{name}/messages', { name }, page);
  return <>
    <Title text={namespace ? `Scanner ${namespace}/${name}` : `ClusterScanner ${name}`} />
    {namespace ? <View of={own}>{(s) => <ScannerFacts scanner={s} />}</View> : <View of={cluster}>{(s) => <><ScannerFacts scanner={s} />
      {s.topNamespaces.length > 0 && <><h2>Namespaces with most to act on</h2><Table label="Namespaces" rows={s.topNamespaces} id={(n) => n.name} columns={[
        { name: 'Namespace', cell: (n) => <a class="row" href={href('/images', {}, { namespace: n.name })}>{n.name}</a> },
        { name: 'Known exploited', cell: (n) => n.knownExploited, class: 'number' }, { name: 'Critical', cell: (n) => n.critical, class: 'number' },
        { name: 'High', cell: (n) => n.high, class: 'number' }, { name: 'With a fix', cell: (n) => n.fixable, class: 'number' },
      ]} /></>}</>}</View>}
    <h2>Messages</h2>
    <div class="filters"><TextFilter name="receiver" label="Receiver" /></div>
    <View of={namespace ? ownMessages : clusterMessages}>{(list) => list.items.length === 0 ? <p class="mute">No message was sent.</p> : <>
      <Table label="Messages" rows={list.items} id={(m) => String(m.id)} columns={messageColumns} />
      <Pages shown={list.items.length} next={list.continue} what="message" />
    </>}</View>
  </>;
}

const messageColumns = [
  { name: 'Message', cell: (m: Message) => <><b class="break">{m.title}</b> <span class="mute">{m.kind}</span>
    {m.slack ? <Details summary="As in Slack">{() => m.slack && <Slack message={m.slack} />}</Details> : <div class="mute">Another version made it, and this one cannot show it.</div>}</> },
  { name: 'Delivery', cell: (m: Message) => (m.unconfirmed ? <span class="stale">Sent <Time at={m.deliveryTime} />. The receiver never answered: it may be missing in the channel.</span> : <>Accepted <Time at={m.deliveryTime} /></>) },
  { name: 'Receiver', cell: (m: Message) => `${m.receiver}${m.channel ? ` (${m.channel})` : ''}` },
  { name: 'Announced', cell: (m: Message) => count(m.findings, 'finding') },
];
