// A message as Slack shows it. Its blocks are data: each text becomes a text node, and only web addresses become links.
import type { ComponentChildren } from 'preact';
import type { SlackMessage } from './api.gen';
import { visible } from './format';
import { WebLink } from './parts';

type Text = { type?: string; text?: string };
type Block = { type?: string; text?: Text; elements?: Text[] };

const entities: Record<string, string> = { '&lt;': '<', '&gt;': '>', '&amp;': '&' };
const plain = (text: string) => visible(text.replace(/&(?:lt|gt|amp);/g, (entity) => entities[entity] ?? entity).replaceAll(':warning:', '⚠'));

// marks are code, bold and links of Slack's mrkdwn (https://docs.slack.dev/messaging/formatting-message-text). Code has no other marks in it.
const marks = /`([^`\n]+)`|\*([^*\n]+)\*|<([^<>|]+)(?:\|([^<>]*))?>/g;

function mrkdwn(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(marks)) {
    const [all, code, bold, address, label] = match;
    if (match.index > end) parts.push(plain(text.slice(end, match.index)));
    end = match.index + all.length;
    if (code !== undefined) parts.push(<code>{plain(code)}</code>);
    else if (bold !== undefined) parts.push(<b>{mrkdwn(bold)}</b>);
    else parts.push(<WebLink to={plain(address ?? '')}>{plain(label ?? address ?? '')}</WebLink>);
  }
  return [...parts, plain(text.slice(end))];
}

function shown(text: Text | undefined): ComponentChildren {
  return text?.type === 'mrkdwn' ? mrkdwn(text.text ?? '') : visible(text?.text ?? '');
}

// Slack shows the blocks that the notifier uses, and says so where it knows a block not.
export function Slack({ message }: { message: SlackMessage }) {
  return <article class="slack" aria-label={visible(message.text)}>
    <p class="from"><b>Scanner Operator</b> <span class="mark">APP</span></p>
    {(message.blocks as Block[]).map((block) => {
      switch (block.type) {
        case 'header': return <p class="big"><bdi>{shown(block.text)}</bdi></p>;
        case 'section': return <p class="text"><bdi>{shown(block.text)}</bdi></p>;
        case 'context': return (block.elements ?? []).map((element) => <p class="text mute"><bdi>{shown(element)}</bdi></p>);
        case 'divider': return <hr />;
      }
      return <p class="mute">(a block of the type {visible(String(block.type))})</p>;
    })}
  </article>;
}
