# Submits a task with an order: see clients/conformance/failover.py.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";
use MongoDB ();

use Disbatch::Client::Inbox qw(enqueue);

$| = 1;
my $mongodb = MongoDB->connect($ENV{MONGODB_URL});
my $disbatch = $mongodb->get_database($mongodb->db_name);
my $orders = $mongodb->get_database('shop')->get_collection($ENV{ORDERS});
my ($tried, $task) = 0;
$mongodb->start_session->with_transaction(sub {
    my ($session) = @_;
    $task = enqueue($disbatch, $ENV{QUEUE}, { command => $ENV{COMMAND} }, session => $session);
    $orders->insert_one({ task => $task }, { session => $session });
    if (!$tried++) {
        print "inserted\n";
        scalar <STDIN>;
    }
});
print "$task\n";
