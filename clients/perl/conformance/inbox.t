# What is put into the inbox: as the contract says, and once.

use strict;
use warnings;
use utf8;

use BSON::Time ();
use BSON::OID ();
use File::Basename qw(dirname);
use File::Temp ();
use JSON::PP ();
use MongoDB ();
use Test::More;
use Time::Local ();

use Disbatch::Client::Contract qw(problem);
use Disbatch::Client::Dev;
use Disbatch::Client::Inbox qw(enqueue enqueue_many);

my $folder = File::Temp->newdir;
my $dev = Disbatch::Client::Dev->new;
$dev->queue('inbox', 'Disbatch::Plugin::Shell');
my $mongodb = MongoDB->connect($dev->mongodb);
my $disbatch = $mongodb->get_database($mongodb->db_name);
# The application's, which has an inbox that nobody looks at.
my $shop = $mongodb->get_database('shop');
my $orders = $shop->get_collection('orders');
my $others = $shop->get_collection('inbox');

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!";
    local $/;
    return scalar <$file>;
}

# Relaxed extended JSON, as far as the vectors have it.
sub of_json {
    my ($value) = @_;
    return [map { of_json($_) } @$value] if ref $value eq 'ARRAY';
    return $value if ref $value ne 'HASH';
    return BSON::OID->new(oid => pack 'H*', $value->{'$oid'}) if $value->{'$oid'};
    if (my @at = ($value->{'$date'} // '') =~ /\A(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)Z\z/) {
        return BSON::Time->new(value => 1000 * Time::Local::timegm_modern(reverse(@at[3 .. 5]), $at[2], $at[1] - 1, $at[0]));
    }
    return { map { ($_ => of_json($value->{$_})) } keys %$value };
}

# What of a document says something; its id is another one each time.
sub given {
    my (%document) = %{ $_[0] };
    delete $document{_id};
    my %options = %{ delete $document{options} // {} };
    $document{options} = \%options if %options = map { ($_ => $options{$_}) } grep { defined $options{$_} } keys %options;
    return { map { ($_ => $document{$_}) } grep { defined $document{$_} } keys %document };
}

my $vectors = JSON::PP->new->utf8->decode(slurp(dirname(__FILE__) . '/../../../contract/inbox.vectors.json'))->{vectors};
for my $vector (@$vectors) {
    my $name = $vector->{name};
    my $document = { _id => BSON::OID->new, %{ of_json($vector->{document}) } };
    is !defined problem($document), !!$vector->{valid}, $name;
    my %rest = %$document;
    my ($id, $v, $queue, $params, $options, $key, $by, $trace) = delete @rest{qw(_id v queue params options key by trace)};
    # What the arguments can say, and what this driver takes.
    next if %rest || !defined $queue || !$params || ($v // 0) != 1 || ref $options eq 'ARRAY' || grep { /\./ } keys %$params;
    my $made = eval { enqueue($others, $queue, $params, %{ $options // {} }, key => $key, by => $by, traceparent => $trace) };
    is defined $made, !!$vector->{valid}, "$name, by arguments" or diag $@;
    my @stored = $others->find->all;
    is scalar @stored, $vector->{valid} ? 1 : 0, 'and nothing else is there';
    if (@stored) {
        is $stored[0]{_id}->hex, $made, 'under its id';
        is_deeply given($stored[0]), given($document), 'as it is described';
    }
    $shop->drop;
}

for ([$orders, qr/the inbox is the collection inbox, and not orders/], map { [$_, qr/a MongoDB::Database or its collection inbox/] } $mongodb, 'inbox', undef) {
    my ($wrong, $message) = @$_;
    ok !eval { enqueue($wrong, 'q', { a => 1 }); 1 }, 'it is put into nothing else';
    like $@, $message;
}
for ([params => []], [params => BSON::OID->new], [params => undef]) {
    ok !eval { enqueue($shop, 'q', $_->[1]); 1 };
    like $@, qr/\Aparams must be an object at \Q${\__FILE__}/, 'with the place of the call';
}
ok !eval { enqueue_many($shop, 'q', [{ a => 1 }, { a => 2 }], urgency => 1); 1 };
like $@, qr/\Aurgency is unknown; known are/;
is_deeply [$shop->collection_names], [], 'nothing of what is wrong is inserted';

my $before = BSON::OID->new->hex;
my $ids = enqueue_many($shop, 'q', [map { { n => $_ } } 0 .. 2], key => 'k', chain => 1, after => [$before], group => 'g', traceparent => sub { '00-1' });
my @stored = $others->find->all;
is_deeply [map { [$_->{_id}->hex, $_->{params}{n}, $_->{key}, $_->{trace}] } @stored],
    [[$ids->[0], 0, 'k', '00-1'], [$ids->[1], 1, 'k/1', '00-1'], [$ids->[2], 2, 'k/2', '00-1']], 'many have keys of their own';
is_deeply [map { $_->{options} } @stored], [map { { after => [$_], group => 'g' } } $before, $stored[0]{_id}, $stored[1]{_id}], 'and may be a chain';
is_deeply enqueue_many($shop, 'q', []), [], 'none are none';

# Parameters of tasks that leave their ids in a file each time that they run, and a function that has these.
sub noting {
    my ($name) = @_;
    return ({ command => "echo \$DISBATCH_TASK_ID >> $folder/$name" }, sub { [sort split /\n/, slurp("$folder/$name")] });
}

{
    my ($params, $runs) = noting('committed');
    my $session = $mongodb->start_session;
    $session->start_transaction;
    my $id = enqueue($disbatch, 'inbox', $params, session => $session);
    my @all = ($id, @{ enqueue_many($disbatch, 'inbox', [($params) x 20], after => [$id], session => $session) });
    $orders->insert_one({ tasks => \@all }, { session => $session });
    $session->commit_transaction;
    $session->start_transaction;
    my @aborted = (enqueue($disbatch, 'inbox', $params, session => $session), @{ enqueue_many($disbatch, 'inbox', [$params], session => $session) });
    $session->abort_transaction;
    push @all, enqueue($disbatch->get_collection('inbox'), 'inbox', $params);
    is $dev->client->wait($_, timeout => 60)->{word}, 'succeeded' for @all;
    is_deeply $runs->(), [sort @all], 'what is committed runs once';
    my $wanted = [map { BSON::OID->new(oid => pack 'H*', $_) } @aborted];
    is $disbatch->get_collection('tasks')->count_documents({ _id => { '$in' => $wanted } }), 0, 'and what is aborted never';
}

{
    my ($params, $runs) = noting('conflict');
    $orders->insert_one({ _id => 'stock', left => 3 });
    my @tried;
    $mongodb->start_session->with_transaction(sub {
        my ($session) = @_;
        push @tried, enqueue($disbatch, 'inbox', $params, session => $session);
        # Somebody else is faster: what follows conflicts with it.
        $orders->update_one({ _id => 'stock' }, { '$inc' => { left => -1 } }) if @tried == 1;
        $orders->update_one({ _id => 'stock' }, { '$inc' => { left => -1 }, '$push' => { tasks => $tried[-1] } }, { session => $session });
    });
    is scalar @tried, 2, 'a transaction is tried again';
    is_deeply $orders->find_one({ _id => 'stock' }), { _id => 'stock', left => 1, tasks => [$tried[1]] };
    is $dev->client->result($tried[1], timeout => 60), undef;
    is_deeply $runs->(), [$tried[1]], 'and submits once';
}

{
    # Of a version that no DEN knows, so that it stays, and so does what comes after it.
    my $first = $disbatch->get_collection('inbox')->insert_one({ v => 2, queue => 'inbox', params => { command => 'true' } })->inserted_id;
    my $id = enqueue($disbatch, 'inbox', { command => 'true' }, after => [$first->hex]);
    my $task = $dev->client->get($id);
    is_deeply [@$task{qw(id word inbox)}], [$id, 'queued', JSON::PP::true], 'a task is seen before it is moved';
}

done_testing;
