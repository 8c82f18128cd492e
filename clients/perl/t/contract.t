# What may be put into the inbox, without a database.

use strict;
use warnings;
use utf8;

use JSON::PP ();
use Test::More;

use Disbatch::Client::Contract qw(problem);

my %plain = (_id => { '$oid' => '6b0003bb686c8275d8013333' }, v => 1, queue => 'mail', params => {});

sub of_options { problem({ %plain, options => {@_} }) }

is problem(\%plain), undef, 'a plain document';
is problem({ %plain, queue => $plain{_id}, key => 'ü' x 200 }), undef, 'the queue may be an id';
is of_options(timeout => '60', priority => -1000, tags => ['a'], chain => JSON::PP::true, unique => undef, after_when => 'any'), undef, 'options';
is problem({ %plain, queue => '' }), 'queue must be the name or the id of a queue';
is problem({ %plain, queue => { '$date' => 1 } }), 'queue must be the name or the id of a queue';
is problem({ %plain, params => [] }), 'params must be an object';
is problem({ %plain, key => 'ü' x 201 }), 'key must be text of 1 to 200 characters';
is problem({ %plain, v => 2 }), 'v must be 1';
is problem({ map { ($_ => $plain{$_}) } qw(_id queue params) }), 'v is missing';
like problem({ %plain, urgent => 1 }), qr/\Aurgent is unknown; known are _id, by, key, options/;
like of_options(max_attemps => 3), qr/\Amax_attemps is unknown; known are after, .*max_attempts/;
like of_options(secure_params => { pin => 1 }), qr/\Asecure_params: secure parameters are not taken by the inbox/;
like of_options(array => '0-9'), qr/\Aarray: arrays are not taken/;
is of_options(tenant => 'acme'), 'tenant: the tenant follows from the configuration';
is of_options(idempotency_key => 'k'), q{idempotency_key: is the field 'key' of the document};
is of_options(timeout => -1), 'timeout must be seconds from 0 to 315360000';
is of_options(delay => 'NaN' + 0), 'delay must be seconds from 0 to 315360000';
is of_options(max_attempts => 0), 'max_attempts must be an integer from 1 to 1000000';
is of_options(after => []), 'after must be 1 to 1000 ids of tasks';
is of_options(after_when => 'never'), 'after_when must be succeeded, finished or any';
is of_options(chain => 1), 'chain must be true or false';
is problem({ %plain, options => [] }), 'options must be an object';

done_testing;
